-- What a database notes by itself about the writes into a store, for cluster_checker.py. Every daemon has a role of its
-- own, so whoever writes is known whatever it says of itself.

CREATE SCHEMA audit;

CREATE TABLE audit.members (member_id text, state text, who text, at timestamptz DEFAULT clock_timestamp());

CREATE TABLE audit.holds (
    number bigint GENERATED ALWAYS AS IDENTITY,
    session bigint,
    old_epoch bigint,
    epoch bigint,
    member_id text,
    who text,
    at timestamptz DEFAULT clock_timestamp()
);

-- `epoch` and `member_id` are those of the hold that was valid when the line was written.
CREATE TABLE audit.writes (
    number bigint GENERATED ALWAYS AS IDENTITY,
    kind text,
    session bigint,
    line bigint,
    epoch bigint,
    member_id text,
    state text,
    who text,
    at timestamptz DEFAULT clock_timestamp()
);

CREATE FUNCTION audit.note_member() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO audit.members (member_id, state, who) VALUES (NEW.member_id, NEW.state, session_user);
    RETURN NULL;
END $$;

CREATE FUNCTION audit.note_hold() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO audit.holds (session, old_epoch, epoch, member_id, who)
    VALUES (NEW.session, CASE WHEN TG_OP = 'UPDATE' THEN OLD.epoch END, NEW.epoch,
            CASE WHEN NEW.holder IS NOT NULL THEN NEW.member_id END, session_user);
    RETURN NULL;
END $$;

CREATE FUNCTION audit.note_write() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO audit.writes (kind, session, line, epoch, member_id, state, who)
    SELECT TG_TABLE_NAME, NEW.session, NEW.line, holds.epoch, holds.member_id, members.state, session_user
    FROM (SELECT) AS once
    LEFT JOIN amplifier.holds ON holds.session = NEW.session AND holds.holder IS NOT NULL
    LEFT JOIN amplifier.members USING (member_id);
    RETURN NULL;
END $$;

CREATE TRIGGER audit AFTER INSERT OR UPDATE OF state ON amplifier.members
    FOR EACH ROW EXECUTE FUNCTION audit.note_member();
CREATE TRIGGER audit AFTER INSERT OR UPDATE ON amplifier.holds FOR EACH ROW EXECUTE FUNCTION audit.note_hold();
CREATE TRIGGER audit AFTER INSERT ON amplifier.messages FOR EACH ROW EXECUTE FUNCTION audit.note_write();
CREATE TRIGGER audit AFTER INSERT ON amplifier.events FOR EACH ROW EXECUTE FUNCTION audit.note_write();
