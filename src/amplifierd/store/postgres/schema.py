"""The tables, and how an older form of them becomes the present one.

A session has a number that is never used again; whatever belongs to it stands under that number. A session in the trash
keeps its rows, and says when it was deleted. Texts are stored exactly as a file would have them: JSON, one line each.

`append_id` stands at the first line of what was appended in one step, and recognises it when it is given again.

`said` has what can be searched of a message, its words between spaces. Columns of `sessions` beside `record` repeat
what lists ask for.

`turns` has those that were submitted: `job_id` is that of the engine that hands them out, `member_id` who runs one,
`asked_by` where its end is waited for, and `expires_at` until when that is kept.

A step raises `format_version`; `readable_by` is the oldest format whose programs can still use what it leaves, so that
two neighbouring versions of the program share a store while machines are upgraded one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import AsyncConnection, sql

from amplifier_system.tasks import run_to_end
from amplifierd.exceptions import FormatUnsupportedError, StoreUnavailableError

OLDEST_SERVER = 14

FILTERED_COLUMNS = ("status", "profile_name", "bundle", "working_dir", "parent_session_id", "root_session_id", "owner")

WORDS_OF = "array_to_tsvector(string_to_array(btrim({}), ' '))"
"""The words of a text in which they stand between spaces."""

_COLUMNS = "".join(f'{name} text COLLATE "C", ' for name in (*FILTERED_COLUMNS, "last_activity_at", "created_at"))
_INDEXES = "".join(
    f"CREATE INDEX sessions_by_{name} ON sessions ({name}, last_activity_at) WHERE deleted_at IS NULL;"
    for name in ("profile_name", "working_dir", "parent_session_id", "root_session_id", "owner")
)

_FIRST = f"""
CREATE TABLE sessions (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id text COLLATE "C" NOT NULL,
    record text NOT NULL,
    revision bigint NOT NULL,
    deleted_at text COLLATE "C",
    {_COLUMNS}
    ended_at text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    name_said text,
    message_count bigint NOT NULL,
    is_root boolean NOT NULL,
    tags text[] COLLATE "C" NOT NULL
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX sessions_by_id ON sessions (session_id) WHERE deleted_at IS NULL;
CREATE INDEX sessions_by_activity ON sessions (last_activity_at, session_id) WHERE deleted_at IS NULL;
CREATE INDEX sessions_by_creation ON sessions (created_at, session_id) WHERE deleted_at IS NULL;
CREATE INDEX sessions_in_trash ON sessions (deleted_at) WHERE deleted_at IS NOT NULL;
{_INDEXES}
CREATE INDEX sessions_by_tag ON sessions USING gin (tags);
CREATE INDEX sessions_by_words ON sessions USING gin (({WORDS_OF.format("name_said")})) WHERE name_said IS NOT NULL;

CREATE TABLE members (
    member_id text COLLATE "C" PRIMARY KEY,
    kind text NOT NULL,
    host text NOT NULL,
    pid bigint NOT NULL,
    started double precision NOT NULL,
    boot_id text NOT NULL,
    address text,
    version text NOT NULL,
    labels jsonb NOT NULL DEFAULT '{{}}',
    load jsonb NOT NULL DEFAULT '{{}}',
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'draining', 'fenced', 'left')),
    joined_at timestamptz NOT NULL DEFAULT now(),
    unbroken_since timestamptz NOT NULL DEFAULT now(),
    lease_until timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE holds (
    session bigint PRIMARY KEY,
    epoch bigint NOT NULL,
    holder json,
    member_id text COLLATE "C",
    since text NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX holds_of_member ON holds (member_id) WHERE holder IS NOT NULL;

CREATE TABLE messages (
    session bigint, line bigint, message_id text, body text NOT NULL, said text, PRIMARY KEY (session, line)
);
CREATE INDEX messages_by_words ON messages USING gin (({WORDS_OF.format("said")})) WHERE said IS NOT NULL;
CREATE TABLE events (
    session bigint, line bigint, seq bigint NOT NULL, name text NOT NULL, body text NOT NULL,
    PRIMARY KEY (session, line)
);
CREATE TABLE plans (session bigint, number int, body text NOT NULL, PRIMARY KEY (session, number));
CREATE TABLE documents (session bigint, name text COLLATE "C", body text NOT NULL, PRIMARY KEY (session, name));
CREATE TABLE parts (session bigint, digest text COLLATE "C", content bytea NOT NULL, PRIMARY KEY (session, digest));

CREATE TABLE shared_values (
    kind text COLLATE "C", key text COLLATE "C", value text NOT NULL, expires_at timestamptz, PRIMARY KEY (kind, key)
);
CREATE INDEX shared_values_by_end ON shared_values (expires_at) WHERE expires_at IS NOT NULL;
"""


_TURNS = """
CREATE TABLE turns (
    turn_id text COLLATE "C" PRIMARY KEY,
    session_id text COLLATE "C" NOT NULL,
    member_id text COLLATE "C" NOT NULL,
    asked_by text COLLATE "C" NOT NULL,
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'running', 'ended')),
    job_id bigint NOT NULL,
    priority int NOT NULL,
    moves int NOT NULL DEFAULT 0,
    deadline timestamptz,
    request text,
    result text,
    key_hash text COLLATE "C" UNIQUE,
    fingerprint text,
    expires_at timestamptz
) WITH (fillfactor = 50);
CREATE INDEX turns_of_session ON turns (session_id, priority DESC, job_id) WHERE state <> 'ended';
CREATE INDEX turns_of_member ON turns (member_id) WHERE state <> 'ended';
CREATE UNIQUE INDEX turns_by_job ON turns (job_id) WHERE state <> 'ended';
CREATE INDEX turns_by_end ON turns (expires_at) WHERE state = 'ended';
CREATE TABLE job_migrations (name text COLLATE "C" PRIMARY KEY);
"""


_APPEND_IDS = """
ALTER TABLE messages ADD COLUMN append_id uuid;
ALTER TABLE events ADD COLUMN append_id uuid;
CREATE UNIQUE INDEX messages_by_append ON messages (session, append_id) WHERE append_id IS NOT NULL;
CREATE UNIQUE INDEX events_by_append ON events (session, append_id) WHERE append_id IS NOT NULL;
"""


@dataclass(frozen=True)
class Step:
    """What makes a format out of the one before it."""

    statements: str
    readable_by: int


STEPS = (Step(_FIRST, readable_by=1), Step(_TURNS, readable_by=1), Step(_APPEND_IDS, readable_by=1))
FORMAT_VERSION = len(STEPS)

OF_A_SESSION = ("holds", "messages", "events", "plans", "documents", "parts")
"""The tables whose rows belong to one session each."""


async def prepare(connection: AsyncConnection, schema: str) -> None:
    """Make sure that the tables are there in a form that this version can use.

    Raises:
        FormatUnsupportedError: a newer version made them, and says that this one cannot use them.
        StoreUnavailableError: the server is too old, or keeps texts in an encoding that cannot take every text.
    """
    _check_server(connection)
    if not await _is_prepared(connection, schema):
        await run_to_end(_migrate(connection, schema))  # however long it takes


async def _migrate(connection: AsyncConnection, schema: str) -> None:
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")  # a step may go through everything that is stored
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"amplifier:{schema}"])
        await connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS format (format_version int NOT NULL, readable_by int NOT NULL)"
        )
        found = await _format_of(connection, schema)
        for number, step in enumerate(STEPS[found:], start=found + 1):
            await connection.execute(sql.SQL(step.statements))
            await connection.execute("DELETE FROM format")
            await connection.execute("INSERT INTO format VALUES (%s, %s)", [number, step.readable_by])


async def _is_prepared(connection: AsyncConnection, schema: str) -> bool:
    found = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{schema}.format"])
    row = await found.fetchone()
    return row is not None and row[0] and await _format_of(connection, schema) >= FORMAT_VERSION


async def _format_of(connection: AsyncConnection, schema: str) -> int:
    row = await (await connection.execute("SELECT format_version, readable_by FROM format")).fetchone()
    if row is None:
        return 0
    version, readable_by = row
    if readable_by > FORMAT_VERSION:
        raise FormatUnsupportedError(
            f"the store {schema!r} has format {version}, this version reads up to {FORMAT_VERSION}",
            hint="use the version that other machines use, or a newer one",
        )
    return int(version)


def _check_server(connection: AsyncConnection) -> None:
    version = connection.info.server_version // 10_000
    if version < OLDEST_SERVER:
        raise StoreUnavailableError(
            f"the server is PostgreSQL {version}, and sessions need {OLDEST_SERVER} or newer", hint="use a newer server"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreUnavailableError(
            f"the database stores text as {encoding}, which cannot represent every character",
            hint="create one with: CREATE DATABASE amplifier ENCODING 'UTF8' TEMPLATE template0",
        )
