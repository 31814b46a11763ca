SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA earlier;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE earlier.documents (
    session bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL
);
CREATE TABLE earlier.events (
    session bigint NOT NULL,
    line bigint NOT NULL,
    seq bigint NOT NULL,
    name text NOT NULL,
    body text NOT NULL,
    append_id uuid
);
CREATE TABLE earlier.format (
    format_version integer NOT NULL,
    readable_by integer NOT NULL
);
CREATE TABLE earlier.holds (
    session bigint NOT NULL,
    epoch bigint NOT NULL,
    holder json,
    member_id text COLLATE pg_catalog."C",
    since text NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE earlier.job_migrations (
    name text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE earlier.members (
    member_id text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    host text NOT NULL,
    pid bigint NOT NULL,
    started double precision NOT NULL,
    boot_id text NOT NULL,
    address text,
    version text NOT NULL,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    load jsonb DEFAULT '{}'::jsonb NOT NULL,
    state text DEFAULT 'active'::text NOT NULL,
    joined_at timestamp with time zone DEFAULT now() NOT NULL,
    unbroken_since timestamp with time zone DEFAULT now() NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    CONSTRAINT members_state_check CHECK ((state = ANY (ARRAY['active'::text, 'draining'::text, 'fenced'::text, 'left'::text])))
)
WITH (fillfactor='50');
CREATE TABLE earlier.messages (
    session bigint NOT NULL,
    line bigint NOT NULL,
    message_id text,
    body text NOT NULL,
    said text,
    append_id uuid
);
CREATE TABLE earlier.parts (
    session bigint NOT NULL,
    digest text NOT NULL COLLATE pg_catalog."C",
    content bytea NOT NULL
);
CREATE TABLE earlier.plans (
    session bigint NOT NULL,
    number integer NOT NULL,
    body text NOT NULL
);
CREATE TABLE earlier.sessions (
    number bigint NOT NULL,
    session_id text NOT NULL COLLATE pg_catalog."C",
    record text NOT NULL,
    revision bigint NOT NULL,
    deleted_at text COLLATE pg_catalog."C",
    status text COLLATE pg_catalog."C",
    profile_name text COLLATE pg_catalog."C",
    bundle text COLLATE pg_catalog."C",
    working_dir text COLLATE pg_catalog."C",
    parent_session_id text COLLATE pg_catalog."C",
    root_session_id text COLLATE pg_catalog."C",
    owner text COLLATE pg_catalog."C",
    last_activity_at text COLLATE pg_catalog."C",
    created_at text COLLATE pg_catalog."C",
    ended_at text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    name_said text,
    message_count bigint NOT NULL,
    is_root boolean NOT NULL,
    tags text[] NOT NULL COLLATE pg_catalog."C"
)
WITH (fillfactor='80');
ALTER TABLE earlier.sessions ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME earlier.sessions_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE earlier.shared_values (
    kind text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL,
    expires_at timestamp with time zone
);
CREATE TABLE earlier.turns (
    turn_id text NOT NULL COLLATE pg_catalog."C",
    session_id text NOT NULL COLLATE pg_catalog."C",
    member_id text NOT NULL COLLATE pg_catalog."C",
    asked_by text NOT NULL COLLATE pg_catalog."C",
    state text DEFAULT 'waiting'::text NOT NULL,
    job_id bigint NOT NULL,
    priority integer NOT NULL,
    moves integer DEFAULT 0 NOT NULL,
    deadline timestamp with time zone,
    request text,
    result text,
    key_hash text COLLATE pg_catalog."C",
    fingerprint text,
    expires_at timestamp with time zone,
    CONSTRAINT turns_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'running'::text, 'ended'::text])))
)
WITH (fillfactor='50');
INSERT INTO earlier.documents VALUES (1, 'context_messages', '{"begun":true,"messages":[]}');
INSERT INTO earlier.events VALUES (1, 1, 1, 'session:created', '{"seq":1,"epoch":0,"ts":"2026-11-18T20:42:25.658333Z","lvl":"INFO","event":"session:created","session_id":"earlier-plan","parent_id":null,"correlation_id":null,"data":{"session_id":"earlier-plan","name":null,"profile_name":null,"working_dir":"/tmp/amplifier-earlier/work","created_by":"user"}}', NULL);
INSERT INTO earlier.events VALUES (1, 2, 2, 'session:status', '{"seq":2,"epoch":1,"ts":"2026-11-18T20:42:26.522315Z","lvl":"INFO","event":"session:status","session_id":"earlier-plan","parent_id":null,"correlation_id":null,"data":{"status":"active","activity":"idle"}}', '909216ff-2a5f-43ad-bad5-98c4783c979e');
INSERT INTO earlier.events VALUES (1, 3, 3, 'session:status', '{"seq":3,"epoch":1,"ts":"2026-11-18T20:42:26.557701Z","lvl":"INFO","event":"session:status","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"status":"active","activity":"executing"},"turn_id":"48f20117096f4834867661eedfcb9147"}', '3f6bb20c-bfcd-41f8-b4c0-b05dcbae8c8b');
INSERT INTO earlier.events VALUES (1, 4, 4, 'user_message:saved', '{"seq":4,"epoch":1,"ts":"2026-11-18T20:42:26.557722Z","lvl":"INFO","event":"user_message:saved","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"message_id":"msg_9c9d133a30804c76bfd3c6de16c5c7a8","role":"user","content":"Remember the milk","turn":1},"turn_id":"48f20117096f4834867661eedfcb9147"}', NULL);
INSERT INTO earlier.events VALUES (1, 5, 5, 'assistant_message:start', '{"seq":5,"epoch":1,"ts":"2026-11-18T20:42:26.557727Z","lvl":"INFO","event":"assistant_message:start","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"message_id":null,"role":"assistant","content":null,"turn":1},"turn_id":"48f20117096f4834867661eedfcb9147"}', NULL);
INSERT INTO earlier.events VALUES (1, 6, 6, 'checkpoint:taken', '{"seq":6,"epoch":1,"ts":"2026-11-18T20:42:26.601982Z","lvl":"INFO","event":"checkpoint:taken","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"turn":1,"label":"before","id":"1000001","complete":true}}', 'db93a8e5-716c-4b0f-aa5f-afd9712b5e05');
INSERT INTO earlier.events VALUES (1, 7, 7, 'session:start', '{"seq":7,"epoch":1,"ts":"2026-11-18T20:42:26.602400Z","lvl":"INFO","event":"session:start","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"config":{"session":{"orchestrator":{"module":"loop-basic"},"context":{"module":"context-simple"},"settings":{"working_dir":"/tmp/amplifier-earlier/work","session_cwd":"/tmp/amplifier-earlier/work"}},"providers":[{"module":"provider-mock","config":{"script":[{"tool_calls":[{"name":"write_file","arguments":{"file_path":"notes.md","content":"Milk."}}]},"Noted.","Still here."],"on_exhausted":"canned","tool_trigger":null}}],"tools":[{"module":"tool-filesystem","config":{"working_dir":"/tmp/amplifier-earlier/work","allowed_write_paths":["/tmp/amplifier-earlier/work"]}}]},"timestamp":"2026-11-18T20:42:26.602281+00:00"}}', '7579c54f-273b-4ada-a113-a6c626dd48b2');
INSERT INTO earlier.events VALUES (1, 8, 8, 'prompt:submit', '{"seq":8,"epoch":1,"ts":"2026-11-18T20:42:26.602707Z","lvl":"INFO","event":"prompt:submit","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"prompt":"Remember the milk","timestamp":"2026-11-18T20:42:26.602697+00:00"}}', NULL);
INSERT INTO earlier.events VALUES (1, 9, 9, 'execution:start', '{"seq":9,"epoch":1,"ts":"2026-11-18T20:42:26.602744Z","lvl":"INFO","event":"execution:start","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"prompt":"Remember the milk","timestamp":"2026-11-18T20:42:26.602737+00:00"}}', NULL);
INSERT INTO earlier.events VALUES (1, 10, 10, 'provider:request', '{"seq":10,"epoch":1,"ts":"2026-11-18T20:42:26.603684Z","lvl":"INFO","event":"provider:request","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"provider":"mock","iteration":0,"model":"mock-model","timestamp":"2026-11-18T20:42:26.603672+00:00"}}', NULL);
INSERT INTO earlier.events VALUES (1, 11, 11, 'request:stored', '{"seq":11,"epoch":1,"ts":"2026-11-18T20:42:26.717959Z","lvl":"INFO","event":"request:stored","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"request_id":"request_f27b9328edf0443b8f7ae9f51125965f","turn":1,"provider":"mock","model":"mock-model","base":null,"keep":0,"add":[{"hash":"adef53299393ccaa91f4e618c271a93c6f621b2c1ce7527b5cb274b86c2952a3","role":"user","tokens":12,"message":"msg_9c9d133a30804c76bfd3c6de16c5c7a8"}],"messages":1,"tokens":12,"tools":"c21c803b19eca24b0668f3f478e773d38aac08b5a6a6cddc5a8e46e8ff2c3b0c","parameters":{}}}', 'ea85a05d-5f71-4174-ad20-967570a44d09');
INSERT INTO earlier.events VALUES (1, 12, 12, 'llm:request', '{"seq":12,"epoch":1,"ts":"2026-11-18T20:42:26.718647Z","lvl":"INFO","event":"llm:request","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"provider":"mock","model":"mock-model","message_count":1,"timestamp":"2026-11-18T20:42:26.718570+00:00","request_id":"45b9500c-6513-486b-b886-aa9f60afbbb3"}}', NULL);
INSERT INTO earlier.events VALUES (1, 13, 13, 'llm:stream_block_start', '{"seq":13,"epoch":1,"ts":"2026-11-18T20:42:26.721490Z","lvl":"INFO","event":"llm:stream_block_start","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"request_id":"cc241570-dccc-41dc-8a6a-a57bc2e405a2","block_index":0,"block_type":"tool_use","name":"write_file","timestamp":"2026-11-18T20:42:26.721472+00:00"}}', NULL);
INSERT INTO earlier.events VALUES (1, 14, 14, 'llm:stream_block_end', '{"seq":14,"epoch":1,"ts":"2026-11-18T20:42:26.721515Z","lvl":"INFO","event":"llm:stream_block_end","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"request_id":"cc241570-dccc-41dc-8a6a-a57bc2e405a2","block_index":0,"block_type":"tool_use","timestamp":"2026-11-18T20:42:26.721509+00:00"}}', NULL);
INSERT INTO earlier.events VALUES (1, 15, 15, 'llm:response', '{"seq":15,"epoch":1,"ts":"2026-11-18T20:42:26.721600Z","lvl":"INFO","event":"llm:response","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"provider":"mock","model":"mock-model","status":"ok","duration_ms":0,"usage":{"input_tokens":10,"output_tokens":5,"cost_usd":null,"total_tokens":15},"stop_reason":"tool_calls","timestamp":"2026-11-18T20:42:26.721557+00:00","request_id":"45b9500c-6513-486b-b886-aa9f60afbbb3"}}', NULL);
INSERT INTO earlier.events VALUES (1, 16, 16, 'response:stored', '{"seq":16,"epoch":1,"ts":"2026-11-18T20:42:26.721774Z","lvl":"INFO","event":"response:stored","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"request_id":"request_f27b9328edf0443b8f7ae9f51125965f","hash":"4bc17d395d87a3f09d13fcd4ba72cdf43b0dddc437e0480904bfdaed3e2fb40a","finish_reason":"tool_calls","usage":{"input_tokens":10,"output_tokens":5,"total_tokens":15},"duration_ms":3.694}}', NULL);
INSERT INTO earlier.events VALUES (1, 31, 31, 'response:stored', '{"seq":31,"epoch":1,"ts":"2026-11-18T20:42:26.841757Z","lvl":"INFO","event":"response:stored","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"request_id":"request_4411c22ca28b4cd3a816a8b2e5667de9","hash":"23f3d118c0e392f2620695cce60ca7f1888b605b8a66c917ec08d7ec8385fd61","finish_reason":"stop","usage":{"input_tokens":10,"output_tokens":20,"total_tokens":30},"duration_ms":1.071}}', NULL);
INSERT INTO earlier.events VALUES (1, 17, 17, 'provider:response', '{"seq":17,"epoch":1,"ts":"2026-11-18T20:42:26.748278Z","lvl":"INFO","event":"provider:response","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"provider":"mock","iteration":0,"usage":{"input_tokens":10,"output_tokens":5,"total_tokens":15,"reasoning_tokens":null,"cache_read_tokens":null,"cache_write_tokens":null,"cost_usd":null},"tool_calls":true,"finish_reason":"tool_calls","response":{"content":[{"type":"tool_call","visibility":null,"id":"call_mock_1_0","name":"write_file","input":{"file_path":"notes.md","content":"Milk."}}],"tool_calls":[{"id":"call_mock_1_0","tool":"write_file","arguments":{"file_path":"notes.md","content":"Milk."}}]},"timestamp":"2026-11-18T20:42:26.748241+00:00"}}', NULL);
INSERT INTO earlier.events VALUES (1, 18, 18, 'content_block:start', '{"seq":18,"epoch":1,"ts":"2026-11-18T20:42:26.748386Z","lvl":"INFO","event":"content_block:start","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"block_type":"tool_call","block_index":0,"total_blocks":1,"timestamp":"2026-11-18T20:42:26.748380+00:00"}}', NULL);
INSERT INTO earlier.events VALUES (1, 19, 19, 'content_block:end', '{"seq":19,"epoch":1,"ts":"2026-11-18T20:42:26.748414Z","lvl":"INFO","event":"content_block:end","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"block_index":0,"total_blocks":1,"block":{"type":"tool_call","id":"call_mock_1_0","name":"write_file","arguments":{"file_path":"notes.md","content":"Milk."}},"usage":{"input_tokens":10,"output_tokens":5,"total_tokens":15,"reasoning_tokens":null,"cache_read_tokens":null,"cache_write_tokens":null,"cost_usd":null},"timestamp":"2026-11-18T20:42:26.748407+00:00"}}', NULL);
INSERT INTO earlier.events VALUES (1, 20, 20, 'tool:pre', '{"seq":20,"epoch":1,"ts":"2026-11-18T20:42:26.771197Z","lvl":"INFO","event":"tool:pre","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"tool_name":"write_file","tool_call_id":"call_mock_1_0","tool_input":{"file_path":"notes.md","content":"Milk."},"parallel_group_id":"c2074781-2f61-4cf4-b4ce-410f3d37794c","timestamp":"2026-11-18T20:42:26.771172+00:00"}}', '00fc9877-6017-43f1-ab44-ecc534e7e1aa');
INSERT INTO earlier.events VALUES (1, 21, 21, 'tool:intent', '{"seq":21,"epoch":1,"ts":"2026-11-18T20:42:26.771342Z","lvl":"INFO","event":"tool:intent","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"tool_call_id":"call_mock_1_0","tool_name":"write_file","input_hash":"sha256:62644cd367ac3f6f502439d2a7a8aaf4462f9373316b72fd637e9d121901d2ff","retry":"never"}}', NULL);
INSERT INTO earlier.events VALUES (1, 22, 22, 'artifact:write', '{"seq":22,"epoch":1,"ts":"2026-11-18T20:42:26.812997Z","lvl":"INFO","event":"artifact:write","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"path":"/tmp/amplifier-earlier/work/notes.md","bytes":5,"timestamp":"2026-11-18T20:42:26.812967+00:00"}}', '8618be4e-d2ce-4f49-bdda-fb37f7ff332a');
INSERT INTO earlier.events VALUES (1, 23, 23, 'tool:outcome', '{"seq":23,"epoch":1,"ts":"2026-11-18T20:42:26.816105Z","lvl":"INFO","event":"tool:outcome","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"tool_call_id":"call_mock_1_0","success":true,"result":{"success":true,"output":{"file_path":"/tmp/amplifier-earlier/work/notes.md","bytes":5,"created":true},"error":null},"content":"{\"file_path\": \"/tmp/amplifier-earlier/work/notes.md\", \"bytes\": 5, \"created\": true}"}}', '8c8344e8-e4aa-4b6c-8663-f3b01670b08f');
INSERT INTO earlier.events VALUES (1, 24, 24, 'tool:post', '{"seq":24,"epoch":1,"ts":"2026-11-18T20:42:26.830251Z","lvl":"INFO","event":"tool:post","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"tool_name":"write_file","tool_call_id":"call_mock_1_0","tool_input":{"file_path":"notes.md","content":"Milk."},"parallel_group_id":"c2074781-2f61-4cf4-b4ce-410f3d37794c","duration_ms":58.97,"timestamp":"2026-11-18T20:42:26.830227+00:00"}}', 'bd0b0f3e-69e9-44be-a5d1-ac5a9844f48e');
INSERT INTO earlier.events VALUES (1, 25, 25, 'provider:request', '{"seq":25,"epoch":1,"ts":"2026-11-18T20:42:26.840115Z","lvl":"INFO","event":"provider:request","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"provider":"mock","iteration":1,"model":"mock-model","timestamp":"2026-11-18T20:42:26.840093+00:00"}}', 'df674f92-66ee-4e95-a33c-1d5bb9de6d17');
INSERT INTO earlier.events VALUES (1, 26, 26, 'request:stored', '{"seq":26,"epoch":1,"ts":"2026-11-18T20:42:26.840598Z","lvl":"INFO","event":"request:stored","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"request_id":"request_4411c22ca28b4cd3a816a8b2e5667de9","turn":1,"provider":"mock","model":"mock-model","base":"request_f27b9328edf0443b8f7ae9f51125965f","keep":1,"add":[{"hash":"4bc17d395d87a3f09d13fcd4ba72cdf43b0dddc437e0480904bfdaed3e2fb40a","role":"assistant","tokens":39,"message":"msg_29caad0b23db47a98c6ce87c8381b419"},{"hash":"417a9d0eed9357995197b2747cbd449b7c3bfeb573d886c7e0c10a9dbcd37987","role":"tool","tokens":36,"message":"msg_91b492c82fa14713a254fe7754bf030d"}],"messages":3,"tokens":87,"tools":"c21c803b19eca24b0668f3f478e773d38aac08b5a6a6cddc5a8e46e8ff2c3b0c","parameters":{}}}', NULL);
INSERT INTO earlier.events VALUES (1, 27, 27, 'llm:request', '{"seq":27,"epoch":1,"ts":"2026-11-18T20:42:26.840827Z","lvl":"INFO","event":"llm:request","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"provider":"mock","model":"mock-model","message_count":3,"timestamp":"2026-11-18T20:42:26.840790+00:00","request_id":"523179b6-7d3c-4438-ae03-a0b3ed268f7e"}}', NULL);
INSERT INTO earlier.events VALUES (1, 28, 28, 'llm:stream_block_start', '{"seq":28,"epoch":1,"ts":"2026-11-18T20:42:26.841475Z","lvl":"INFO","event":"llm:stream_block_start","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"request_id":"c3437553-4523-4e50-a9d7-b64ffe0c96be","block_index":0,"block_type":"text","timestamp":"2026-11-18T20:42:26.841466+00:00"}}', NULL);
INSERT INTO earlier.events VALUES (1, 29, 29, 'llm:stream_block_end', '{"seq":29,"epoch":1,"ts":"2026-11-18T20:42:26.841529Z","lvl":"INFO","event":"llm:stream_block_end","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"request_id":"c3437553-4523-4e50-a9d7-b64ffe0c96be","block_index":0,"block_type":"text","timestamp":"2026-11-18T20:42:26.841525+00:00"}}', NULL);
INSERT INTO earlier.events VALUES (1, 30, 30, 'llm:response', '{"seq":30,"epoch":1,"ts":"2026-11-18T20:42:26.841623Z","lvl":"INFO","event":"llm:response","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"provider":"mock","model":"mock-model","status":"ok","duration_ms":0,"usage":{"input_tokens":10,"output_tokens":20,"cost_usd":null,"total_tokens":30},"stop_reason":"stop","timestamp":"2026-11-18T20:42:26.841561+00:00","request_id":"523179b6-7d3c-4438-ae03-a0b3ed268f7e"}}', NULL);
INSERT INTO earlier.events VALUES (1, 32, 32, 'provider:response', '{"seq":32,"epoch":1,"ts":"2026-11-18T20:42:26.845457Z","lvl":"INFO","event":"provider:response","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"provider":"mock","iteration":1,"usage":{"input_tokens":10,"output_tokens":20,"total_tokens":30,"reasoning_tokens":null,"cache_read_tokens":null,"cache_write_tokens":null,"cost_usd":null},"tool_calls":false,"finish_reason":"stop","response":{"content":[{"type":"text","visibility":null,"text":"Noted."}],"tool_calls":[]},"timestamp":"2026-11-18T20:42:26.841791+00:00"}}', NULL);
INSERT INTO earlier.events VALUES (1, 33, 33, 'content_block:start', '{"seq":33,"epoch":1,"ts":"2026-11-18T20:42:26.845549Z","lvl":"INFO","event":"content_block:start","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"block_type":"text","block_index":0,"total_blocks":1,"timestamp":"2026-11-18T20:42:26.845541+00:00"}}', NULL);
INSERT INTO earlier.events VALUES (1, 34, 34, 'content_block:end', '{"seq":34,"epoch":1,"ts":"2026-11-18T20:42:26.845576Z","lvl":"INFO","event":"content_block:end","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"block_index":0,"total_blocks":1,"block":{"type":"text","text":"Noted."},"usage":{"input_tokens":10,"output_tokens":20,"total_tokens":30,"reasoning_tokens":null,"cache_read_tokens":null,"cache_write_tokens":null,"cost_usd":null},"timestamp":"2026-11-18T20:42:26.845568+00:00"}}', NULL);
INSERT INTO earlier.events VALUES (1, 35, 35, 'prompt:complete', '{"seq":35,"epoch":1,"ts":"2026-11-18T20:42:26.872944Z","lvl":"INFO","event":"prompt:complete","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"response_preview":"Noted.","length":6,"timestamp":"2026-11-18T20:42:26.872922+00:00"}}', '09b125e2-c0e7-4ef7-ad27-b2fb69754048');
INSERT INTO earlier.events VALUES (1, 36, 36, 'orchestrator:complete', '{"seq":36,"epoch":1,"ts":"2026-11-18T20:42:26.872978Z","lvl":"INFO","event":"orchestrator:complete","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"orchestrator":"loop-basic","turn_count":2,"status":"success","timestamp":"2026-11-18T20:42:26.872972+00:00"}}', NULL);
INSERT INTO earlier.events VALUES (1, 37, 37, 'execution:end', '{"seq":37,"epoch":1,"ts":"2026-11-18T20:42:26.872991Z","lvl":"INFO","event":"execution:end","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"response":"Noted.","status":"completed","timestamp":"2026-11-18T20:42:26.872987+00:00"}}', NULL);
INSERT INTO earlier.events VALUES (1, 38, 38, 'checkpoint:taken', '{"seq":38,"epoch":1,"ts":"2026-11-18T20:42:26.914204Z","lvl":"INFO","event":"checkpoint:taken","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"turn":1,"label":"after","id":"1000002","complete":true}}', '48f20117-096f-4834-8676-61eedfcb9147');
INSERT INTO earlier.events VALUES (1, 39, 39, 'assistant_message:complete', '{"seq":39,"epoch":1,"ts":"2026-11-18T20:42:26.914211Z","lvl":"INFO","event":"assistant_message:complete","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"message_id":"msg_4f4f5937af1d457db66c69083e203fbd","role":"assistant","turn":1,"content":"Noted."}}', NULL);
INSERT INTO earlier.events VALUES (1, 40, 40, 'execution:done', '{"seq":40,"epoch":1,"ts":"2026-11-18T20:42:26.914223Z","lvl":"INFO","event":"execution:done","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"status":"completed","usage":{"tokens":{"input":20,"output":25,"total":45,"cache_read":0,"cache_write":0},"tool_calls":1,"turns":1,"seconds":0.271,"cost_usd":null,"unpriced_tokens":45,"by_model":{"mock-model":{"tokens":{"input":20,"output":25,"total":45,"cache_read":0,"cache_write":0},"tool_calls":0,"turns":0,"seconds":0.0,"cost_usd":null,"unpriced_tokens":45}},"by_agent":{}},"finish_reason":"stop","turn":1,"response":"Noted."},"turn_id":"48f20117096f4834867661eedfcb9147","changes":{"turn_count":1,"message_count":4,"agent_invocations":0,"token_usage":{"input":20,"output":25,"total":45,"cache_read":0,"cache_write":0},"usage":{"tokens":{"input":20,"output":25,"total":45,"cache_read":0,"cache_write":0},"tool_calls":1,"turns":1,"seconds":0.271,"cost_usd":null,"unpriced_tokens":45,"by_model":{"mock-model":{"tokens":{"input":20,"output":25,"total":45,"cache_read":0,"cache_write":0},"tool_calls":0,"turns":0,"seconds":0.0,"cost_usd":null,"unpriced_tokens":45}},"by_agent":{}},"usage_seq":37,"model":"mock-model","last_activity_at":"2026-11-18T20:42:26.914160Z","last_error":null,"usage_tree":{"tokens":{"input":20,"output":25,"total":45,"cache_read":0,"cache_write":0},"tool_calls":1,"turns":1,"seconds":0.271,"cost_usd":null,"unpriced_tokens":45,"by_model":{"mock-model":{"tokens":{"input":20,"output":25,"total":45,"cache_read":0,"cache_write":0},"tool_calls":0,"turns":0,"seconds":0.0,"cost_usd":null,"unpriced_tokens":45}},"by_agent":{}}}}', NULL);
INSERT INTO earlier.events VALUES (1, 41, 41, 'session:status', '{"seq":41,"epoch":1,"ts":"2026-11-18T20:42:26.938354Z","lvl":"INFO","event":"session:status","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"status":"active","activity":"idle"}}', '5371bd48-e3b7-40c9-b104-81d6b6f70031');
INSERT INTO earlier.events VALUES (1, 42, 42, 'session:end', '{"seq":42,"epoch":1,"ts":"2026-11-18T20:42:26.938702Z","lvl":"INFO","event":"session:end","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"session_id":"earlier-plan","parent_id":null,"status":"completed","stats":{"session_id":"earlier-plan","started_at":"2026-11-18T20:42:25.874452","status":"completed","total_messages":0,"tool_invocations":0,"tool_successes":0,"tool_failures":0,"total_input_tokens":0,"total_output_tokens":0,"load_failures":[]},"timestamp":"2026-11-18T20:42:26.938652+00:00"}}', '5dcd8bd1-c84a-42d7-98b3-ab80f27723e3');
INSERT INTO earlier.events VALUES (1, 43, 43, 'session:status', '{"seq":43,"epoch":1,"ts":"2026-11-18T20:42:26.938807Z","lvl":"INFO","event":"session:status","session_id":"earlier-plan","parent_id":null,"correlation_id":"prompt_earlier-plan_1","data":{"status":"active","activity":null}}', NULL);
INSERT INTO earlier.format VALUES (3, 1);
INSERT INTO earlier.holds VALUES (1, 1, NULL, NULL, '2026-11-18T20:42:25.782105Z');
INSERT INTO earlier.members VALUES ('member_44c9db91c930a91c942439a1658413bc', 'library', 'vm', 565, 3661.04, 'fe8fcf4e-35c3-413b-a466-557ccbd233c3/pid:[4026531836]', NULL, '0.1.0', '{}', '{}', 'left', '2026-11-18 20:42:25.769821+00', '2026-11-18 20:42:25.769821+00', '2026-11-18 20:42:31.815431+00');
INSERT INTO earlier.messages VALUES (1, 1, 'msg_9c9d133a30804c76bfd3c6de16c5c7a8', '{"id":"msg_9c9d133a30804c76bfd3c6de16c5c7a8","timestamp":"2026-11-18T20:42:26.522739Z","role":"user","content":"Remember the milk","turn":1,"correlation_id":"prompt_earlier-plan_1"}', ' remember the milk ', 'eb4fc855-e1db-43d3-84e0-d8b856b0904d');
INSERT INTO earlier.messages VALUES (1, 2, 'msg_29caad0b23db47a98c6ce87c8381b419', '{"id":"msg_29caad0b23db47a98c6ce87c8381b419","timestamp":"2026-11-18T20:42:26.748660Z","role":"assistant","content":[{"type":"tool_call","visibility":null,"id":"call_mock_1_0","name":"write_file","input":{"file_path":"notes.md","content":"Milk."}}],"turn":1,"correlation_id":"prompt_earlier-plan_1","tool_calls":[{"id":"call_mock_1_0","tool":"write_file","arguments":{"file_path":"notes.md","content":"Milk."}}]}', NULL, '8582cd52-75b7-4929-8c1b-ade0f156c002');
INSERT INTO earlier.messages VALUES (1, 3, 'msg_91b492c82fa14713a254fe7754bf030d', '{"id":"msg_91b492c82fa14713a254fe7754bf030d","timestamp":"2026-11-18T20:42:26.830443Z","role":"tool","content":"{\"file_path\": \"/tmp/amplifier-earlier/work/notes.md\", \"bytes\": 5, \"created\": true}","turn":1,"correlation_id":"prompt_earlier-plan_1","tool_call_id":"call_mock_1_0"}', NULL, '6f5f5989-f1e4-4910-b69a-d4e88948f9a5');
INSERT INTO earlier.messages VALUES (1, 4, 'msg_4f4f5937af1d457db66c69083e203fbd', '{"id":"msg_4f4f5937af1d457db66c69083e203fbd","timestamp":"2026-11-18T20:42:26.845716Z","role":"assistant","content":[{"type":"text","visibility":null,"text":"Noted."}],"turn":1,"correlation_id":"prompt_earlier-plan_1"}', ' noted ', '67b4dc02-4de5-45ec-bfbb-a9f86c818f54');
INSERT INTO earlier.parts VALUES (1, 'c21c803b19eca24b0668f3f478e773d38aac08b5a6a6cddc5a8e46e8ff2c3b0c', '\x5b7b226465736372697074696f6e223a2252656164206120746578742066696c652c206f72206c6973742061206469726563746f72792e204c696e657320636f6d65206e756d62657265642c203230303020617420612074696d6520756e6c657373206c696d69742073617973206f74686572776973653b206c696e6573206f7665722032303030206368617261637465727320617265206375742c20616e64206e6578745f6f6666736574207361797320776865726520746f20636f6e74696e75652e20546865206e756d6265727320617265206e6f742070617274206f66207468652066696c652e2042696e6172792066696c657320617265207265636f676e697365642c206e6f742073686f776e2e20546f2066696e64207465787420696e206d616e792066696c65732075736520612073656172636820746f6f6c20696e73746561642e222c226e616d65223a22726561645f66696c65222c22706172616d6574657273223a7b2270726f70657274696573223a7b2266696c655f70617468223a7b226465736372697074696f6e223a225468652066696c65206f72206469726563746f72793a206162736f6c7574652c2072656c617469766520746f2074686520776f726b696e67206469726563746f72792c207e206f7220616e20406d656e74696f6e2e222c2274797065223a22737472696e67227d2c226c696d6974223a7b226465736372697074696f6e223a22486f77206d616e79206c696e657320746f20726561642e2044656661756c7420323030302e222c2274797065223a22696e7465676572227d2c226f6666736574223a7b226465736372697074696f6e223a22546865206669727374206c696e6520746f20726561642c20636f756e7465642066726f6d20312e2044656661756c7420312e222c2274797065223a22696e7465676572227d7d2c227265717569726564223a5b2266696c655f70617468225d2c2274797065223a226f626a656374227d7d2c7b226465736372697074696f6e223a2243726561746520612066696c65206f72207265706c61636520616c6c206f662069747320636f6e74656e74733b206d697373696e67206469726563746f7269657320617265206d6164652e20546865206c696e6520656e64696e6773206f6620616e206578697374696e6720746578742066696c6520617265206b6570742e20546f206368616e676520612070617274206f6620612066696c652075736520656469745f66696c6520696e73746561642e222c226e616d65223a2277726974655f66696c65222c22706172616d6574657273223a7b2270726f70657274696573223a7b22636f6e74656e74223a7b226465736372697074696f6e223a225468652077686f6c65206e657720636f6e74656e74732e222c2274797065223a22737472696e67227d2c2266696c655f70617468223a7b226465736372697074696f6e223a225468652066696c653a206162736f6c7574652c2072656c617469766520746f2074686520776f726b696e67206469726563746f72792c207e206f7220616e20406d656e74696f6e2e222c2274797065223a22737472696e67227d7d2c227265717569726564223a5b2266696c655f70617468222c22636f6e74656e74225d2c2274797065223a226f626a656374227d7d2c7b226465736372697074696f6e223a225265706c61636520616e206578616374207465787420696e20612066696c652e206f6c645f737472696e67206d757374206f636375722065786163746c79206f6e63652c20776869746520737061636520696e636c756465642c20756e6c657373207265706c6163655f616c6c206973207365743b206769766520656e6f756768206c696e65732061726f756e6420697420746f206d616b6520697420756e697175652c20616e64206c65617665206f757420746865206c696e65206e756d62657273207468617420726561645f66696c652073686f77732e20546f2063726561746520612066696c65206f7220746f207265706c61636520616c6c206f66206974207573652077726974655f66696c6520696e73746561642e222c226e616d65223a22656469745f66696c65222c22706172616d6574657273223a7b2270726f70657274696573223a7b2266696c655f70617468223a7b226465736372697074696f6e223a225468652066696c653a206162736f6c7574652c2072656c617469766520746f2074686520776f726b696e67206469726563746f72792c207e206f7220616e20406d656e74696f6e2e222c2274797065223a22737472696e67227d2c226e65775f737472696e67223a7b226465736372697074696f6e223a22546865207465787420746f2070757420696e2069747320706c6163652e222c2274797065223a22737472696e67227d2c226f6c645f737472696e67223a7b226465736372697074696f6e223a22546865207465787420746f207265706c6163652c2065786163746c7920617320697420697320696e207468652066696c652e222c2274797065223a22737472696e67227d2c227265706c6163655f616c6c223a7b2264656661756c74223a66616c73652c226465736372697074696f6e223a225265706c616365206576657279206f6363757272656e636520696e7374656164206f6620746865206f6e6c79206f6e652e222c2274797065223a22626f6f6c65616e227d7d2c227265717569726564223a5b2266696c655f70617468222c226f6c645f737472696e67222c226e65775f737472696e67225d2c2274797065223a226f626a656374227d7d5d');
INSERT INTO earlier.plans VALUES (1, 0, '{"session":{"orchestrator":{"module":"loop-basic"},"context":{"module":"context-simple"}},"providers":[{"module":"provider-mock","config":{"script":[{"tool_calls":[{"name":"write_file","arguments":{"file_path":"notes.md","content":"Milk."}}]},"Noted.","Still here."],"on_exhausted":"canned","tool_trigger":null}}],"tools":[{"module":"tool-filesystem"}]}');
INSERT INTO earlier.sessions OVERRIDING SYSTEM VALUE VALUES (1, 'earlier-plan', '{"format_version":1,"session_id":"earlier-plan","name":null,"status":"active","profile_name":null,"bundle":null,"working_dir":"/tmp/amplifier-earlier/work","working_dir_scope":"host","working_dir_host":"vm","working_dir_pool":null,"is_trusted":true,"parent_session_id":null,"root_session_id":null,"forked_from_turn":null,"forked_at":null,"created_by":"user","agent_name":null,"owner":null,"origin":null,"imported_from":null,"verified":null,"created_at":"2026-11-18T20:42:25.657940Z","started_at":"2026-11-18T20:42:25.657940Z","ended_at":null,"last_activity_at":"2026-11-18T20:42:26.914160Z","updated_at":"2026-11-18T20:42:26.914474Z","mount_plan_path":"mount_plan.json","build_id":null,"model":"mock-model","message_count":4,"turn_count":1,"agent_invocations":0,"token_usage":{"input":20,"output":25,"total":45,"cache_read":0,"cache_write":0},"usage":{"tokens":{"input":20,"output":25,"total":45,"cache_read":0,"cache_write":0},"tool_calls":1,"turns":1,"seconds":0.271,"cost_usd":null,"unpriced_tokens":45,"by_model":{"mock-model":{"tokens":{"input":20,"output":25,"total":45,"cache_read":0,"cache_write":0},"tool_calls":0,"turns":0,"seconds":0.0,"cost_usd":null,"unpriced_tokens":45}},"by_agent":{}},"usage_seq":37,"usage_tree":{"tokens":{"input":20,"output":25,"total":45,"cache_read":0,"cache_write":0},"tool_calls":1,"turns":1,"seconds":0.271,"cost_usd":null,"unpriced_tokens":45,"by_model":{"mock-model":{"tokens":{"input":20,"output":25,"total":45,"cache_read":0,"cache_write":0},"tool_calls":0,"turns":0,"seconds":0.0,"cost_usd":null,"unpriced_tokens":45}},"by_agent":{}},"limits":null,"on_takeover":"ask","takeover":null,"stale":false,"tainted":false,"error_message":null,"error_details":null,"last_error":null,"load_warnings":[],"settings_overrides":{},"metadata":{},"tags":[],"revision":1,"parent_id":null,"created":"2026-11-18T20:42:25.657940Z"}', 1, NULL, 'active', NULL, NULL, '/tmp/amplifier-earlier/work', NULL, 'earlier-plan', NULL, '2026-11-18T20:42:26.914160Z', '2026-11-18T20:42:25.657940Z', '', '', NULL, 4, true, '{}');
SELECT pg_catalog.setval('earlier.sessions_number_seq', 1, true);
ALTER TABLE ONLY earlier.documents
    ADD CONSTRAINT documents_pkey PRIMARY KEY (session, name);
ALTER TABLE ONLY earlier.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (session, line);
ALTER TABLE ONLY earlier.holds
    ADD CONSTRAINT holds_pkey PRIMARY KEY (session);
ALTER TABLE ONLY earlier.job_migrations
    ADD CONSTRAINT job_migrations_pkey PRIMARY KEY (name);
ALTER TABLE ONLY earlier.members
    ADD CONSTRAINT members_pkey PRIMARY KEY (member_id);
ALTER TABLE ONLY earlier.messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (session, line);
ALTER TABLE ONLY earlier.parts
    ADD CONSTRAINT parts_pkey PRIMARY KEY (session, digest);
ALTER TABLE ONLY earlier.plans
    ADD CONSTRAINT plans_pkey PRIMARY KEY (session, number);
ALTER TABLE ONLY earlier.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (number);
ALTER TABLE ONLY earlier.shared_values
    ADD CONSTRAINT shared_values_pkey PRIMARY KEY (kind, key);
ALTER TABLE ONLY earlier.turns
    ADD CONSTRAINT turns_key_hash_key UNIQUE (key_hash);
ALTER TABLE ONLY earlier.turns
    ADD CONSTRAINT turns_pkey PRIMARY KEY (turn_id);
CREATE UNIQUE INDEX events_by_append ON earlier.events USING btree (session, append_id) WHERE (append_id IS NOT NULL);
CREATE INDEX holds_of_member ON earlier.holds USING btree (member_id) WHERE (holder IS NOT NULL);
CREATE UNIQUE INDEX messages_by_append ON earlier.messages USING btree (session, append_id) WHERE (append_id IS NOT NULL);
CREATE INDEX messages_by_words ON earlier.messages USING gin (array_to_tsvector(string_to_array(btrim(said), ' '::text))) WHERE (said IS NOT NULL);
CREATE INDEX sessions_by_activity ON earlier.sessions USING btree (last_activity_at, session_id) WHERE (deleted_at IS NULL);
CREATE INDEX sessions_by_creation ON earlier.sessions USING btree (created_at, session_id) WHERE (deleted_at IS NULL);
CREATE UNIQUE INDEX sessions_by_id ON earlier.sessions USING btree (session_id) WHERE (deleted_at IS NULL);
CREATE INDEX sessions_by_owner ON earlier.sessions USING btree (owner, last_activity_at) WHERE (deleted_at IS NULL);
CREATE INDEX sessions_by_parent_session_id ON earlier.sessions USING btree (parent_session_id, last_activity_at) WHERE (deleted_at IS NULL);
CREATE INDEX sessions_by_profile_name ON earlier.sessions USING btree (profile_name, last_activity_at) WHERE (deleted_at IS NULL);
CREATE INDEX sessions_by_root_session_id ON earlier.sessions USING btree (root_session_id, last_activity_at) WHERE (deleted_at IS NULL);
CREATE INDEX sessions_by_tag ON earlier.sessions USING gin (tags);
CREATE INDEX sessions_by_words ON earlier.sessions USING gin (array_to_tsvector(string_to_array(btrim(name_said), ' '::text))) WHERE (name_said IS NOT NULL);
CREATE INDEX sessions_by_working_dir ON earlier.sessions USING btree (working_dir, last_activity_at) WHERE (deleted_at IS NULL);
CREATE INDEX sessions_in_trash ON earlier.sessions USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);
CREATE INDEX shared_values_by_end ON earlier.shared_values USING btree (expires_at) WHERE (expires_at IS NOT NULL);
CREATE INDEX turns_by_end ON earlier.turns USING btree (expires_at) WHERE (state = 'ended'::text);
CREATE UNIQUE INDEX turns_by_job ON earlier.turns USING btree (job_id) WHERE (state <> 'ended'::text);
CREATE INDEX turns_of_member ON earlier.turns USING btree (member_id) WHERE (state <> 'ended'::text);
CREATE INDEX turns_of_session ON earlier.turns USING btree (session_id, priority DESC, job_id) WHERE (state <> 'ended'::text);
