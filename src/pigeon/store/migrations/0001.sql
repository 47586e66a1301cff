-- The tables of version 1. Later versions only add, so that programs of the version before can go on.
CREATE TABLE pigeon_sessions (
    session_id text COLLATE "C" PRIMARY KEY,
    header bytea NOT NULL,
    cwd text NOT NULL,
    name text NOT NULL DEFAULT '',
    first_message text NOT NULL DEFAULT '',
    parent_session text NOT NULL DEFAULT '',
    created text NOT NULL DEFAULT '',
    "user" text,
    entries bigint NOT NULL DEFAULT 0,
    modified_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    deleted_at timestamptz
);
CREATE INDEX pigeon_sessions_by_time ON pigeon_sessions (modified_at DESC, session_id DESC) WHERE deleted_at IS NULL;
CREATE INDEX pigeon_sessions_by_folder ON pigeon_sessions (cwd, modified_at DESC, session_id DESC)
    WHERE deleted_at IS NULL;

-- Who may write a session. The epoch stays when the lease is given up, and never goes back.
CREATE TABLE pigeon_leases (
    session_id text COLLATE "C" PRIMARY KEY,
    owner text,
    epoch bigint NOT NULL,
    expires_at timestamptz NOT NULL
);

-- A line is bytes: jsonb keeps neither all characters nor the order of keys. Words and custom_type are derived from it.
CREATE TABLE pigeon_entries (
    session_id text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    epoch bigint NOT NULL,
    node text NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    line bytea NOT NULL,
    custom_type text,
    words tsvector,
    PRIMARY KEY (session_id, position)
);
CREATE INDEX pigeon_entries_words ON pigeon_entries USING gin (words);
CREATE INDEX pigeon_entries_custom ON pigeon_entries (custom_type, session_id, position) WHERE custom_type IS NOT NULL;

-- Who did what, and when; no content. Written in the transaction of what it tells, and never changed.
CREATE TABLE pigeon_audit (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    "user" text,
    action text NOT NULL,
    session_id text,
    address text,
    node text
);

-- Epoch, position and lines in one transaction: 'written', 'known' (the same lines are there), or why not.
CREATE FUNCTION pigeon_append(
    p_session text, p_epoch bigint, p_position bigint,
    p_lines bytea[], p_words text[], p_types text[], p_actions text[], p_name text, p_prompt text
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_entries bigint;
    v_epoch bigint;
    v_owner text;
    v_count bigint := cardinality(p_lines);
BEGIN
    SELECT entries INTO v_entries FROM pigeon_sessions
        WHERE session_id = p_session AND deleted_at IS NULL FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN 'missing';
    END IF;
    SELECT epoch, owner INTO v_epoch, v_owner FROM pigeon_leases WHERE session_id = p_session FOR NO KEY UPDATE;
    IF NOT FOUND OR v_epoch <> p_epoch THEN
        RETURN 'stale';
    END IF;
    IF p_position = v_entries THEN
        INSERT INTO pigeon_entries (session_id, position, epoch, node, line, custom_type, words)
            SELECT p_session, p_position + given.number - 1, p_epoch, coalesce(v_owner, ''), given.line,
                nullif(given.type, ''),
                CASE WHEN given.words <> '' THEN array_to_tsvector(string_to_array(given.words, ' ')) END
            FROM unnest(p_lines, p_words, p_types) WITH ORDINALITY AS given (line, words, type, number);
        UPDATE pigeon_sessions SET entries = v_entries + v_count,
            modified_at = greatest(clock_timestamp(), modified_at),
            name = coalesce(p_name, name),
            first_message = CASE WHEN first_message = '' THEN p_prompt ELSE first_message END
            WHERE session_id = p_session;
        INSERT INTO pigeon_audit (action, session_id, node)
            SELECT action, p_session, v_owner FROM unnest(p_actions) AS given (action);
        RETURN 'written';
    END IF;
    IF p_position < v_entries AND p_position + v_count <= v_entries AND p_position >= 0 AND v_count = (
        SELECT count(*) FROM unnest(p_lines) WITH ORDINALITY AS given (line, number)
            JOIN pigeon_entries kept ON kept.session_id = p_session
                AND kept.position = p_position + given.number - 1 AND kept.line = given.line
    ) THEN
        RETURN 'known';
    END IF;
    RETURN 'mismatch ' || v_entries;
END
$$;
