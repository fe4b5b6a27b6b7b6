-- What reads want built, and what of it needs no model.

-- The model unit of the source's present version, and what kind of build that makes the next.
CREATE FUNCTION cortex._build_class(of_source bigint, of_version bigint) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN bool_or(u.version_id = $2) THEN 'THIN' WHEN count(*) > 0 THEN 'STALE-OWNED' ELSE 'NOVEL' END
      FROM cortex.unit u WHERE u.source_id = $1 AND u.purpose = 'model' AND u.evicted_by IS NULL
$$;

-- Queues a build of a source, unless one is queued or being queued: true if this call did. Never waits: whoever is
-- about to queue the same holds the lock. A dead build makes way for one of another version, or after an hour.
CREATE FUNCTION cortex._build_queue(ns integer, of_source bigint, of_version bigint, of_chunks bigint[]) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(1668248698, (of_source % 2147483647)::integer) THEN  -- 'corz'
        RETURN false;
    END IF;
    DELETE FROM cortex.job j
     WHERE j.namespace_id = ns AND j.kind = 'build' AND j.payload ->> 'source' = of_source::text AND j.state = 'dead'
       AND ((j.payload ->> 'version')::bigint <> of_version OR j.run_after < clock_timestamp() - interval '1 hour');
    INSERT INTO cortex.job (namespace_id, kind, payload, total)
    VALUES (ns, 'build', jsonb_build_object('source', of_source, 'version', of_version)
                         || CASE WHEN of_chunks IS NULL THEN '{}' ELSE jsonb_build_object('chunks', to_jsonb(of_chunks)) END,
            cardinality(of_chunks))
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$$;

-- The part of cortex_build_want behind the check of the caller. Nothing in it waits for another transaction.
CREATE FUNCTION cortex._build_want(ns integer, wanted jsonb, embedding real[]) RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    settings constant jsonb := cortex._pool_settings(ns);
    item jsonb;
    source record;
    job record;
    class text;
    chunks bigint[];
    open bigint[];
    asked_versions bigint[] := '{}';
    asked_chunks bigint[] := '{}';
    novel bigint[] := '{}';
    queued integer := 0;
    already integer := 0;
    backing_off integer := 0;
    gone integer := 0;
    found_digest bytea;
    space integer;
    coverage_floor float8;
    vector_schema text;
    leads boolean := false;
    near boolean;
BEGIN
    IF wanted IS NULL OR jsonb_typeof(wanted) <> 'array' OR jsonb_array_length(wanted) > 100 THEN
        RAISE EXCEPTION 'wanted is %, not an array of at most 100', CASE
                WHEN wanted IS NULL THEN 'NULL'
                WHEN jsonb_typeof(wanted) = 'array' THEN format('an array of %s', jsonb_array_length(wanted))
                ELSE 'a JSON ' || jsonb_typeof(wanted) END
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Pass the wanted column of cortex_read.';
    END IF;
    IF jsonb_array_length(wanted) > 0 AND (settings ->> 'builder' <> 'model' OR settings ->> 'build_when' = 'off') THEN
        RAISE EXCEPTION 'nothing is built in this namespace: builder is "%", build_when is "%"',
            settings ->> 'builder', settings ->> 'build_when'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'cortex_pool_set(namespace, ''{"builder": "model", "build_when": "lazy"}'') lets builds be queued.';
    END IF;
    FOR item IN SELECT * FROM jsonb_array_elements(wanted) LOOP
        IF jsonb_typeof(item) <> 'object' OR NOT coalesce(jsonb_typeof(item -> 'source_id') = 'number', false)
           OR (item ->> 'source_id')::numeric % 1 <> 0 OR (item ->> 'source_id')::numeric NOT BETWEEN 1 AND 9223372036854775807
           OR jsonb_typeof(coalesce(item -> 'version_id', 'null')) NOT IN ('number', 'null')
           OR jsonb_typeof(coalesce(item -> 'chunk_ids', 'null')) NOT IN ('array', 'null') THEN
            RAISE EXCEPTION 'wanted: % names no source', left(item::text, 200) USING ERRCODE = 'invalid_parameter_value',
                HINT = 'Each is {"source_id": n, "version_id": n, "chunk_ids": [n, ..]}, as in the wanted column of cortex_read.';
        END IF;
        chunks := NULL;
        open := NULL;
        IF jsonb_array_length(nullif(item -> 'chunk_ids', 'null')) > 0 THEN
            chunks := cortex._ids(item -> 'chunk_ids', 'chunk_ids');
        END IF;
        SELECT s.id, v.id AS version INTO source
          FROM cortex.source s JOIN cortex.source_version v ON v.source_id = s.id AND v.closed_by IS NULL
         WHERE s.id = (item ->> 'source_id')::bigint AND s.namespace_id = ns;
        -- Chunks of a version that was current when the read looked say nothing of the present one.
        IF NOT FOUND OR (item ->> 'version_id')::numeric <> source.version THEN
            gone := gone + 1;
            CONTINUE;
        END IF;
        IF chunks IS NOT NULL THEN
            SELECT array_agg(c.id ORDER BY c.ordinal), array_agg(c.id ORDER BY c.ordinal) FILTER (WHERE NOT cortex._covered(c.id))
              INTO chunks, open FROM cortex.chunk c WHERE c.version_id = source.version AND c.id = ANY (chunks);
            IF chunks IS NULL THEN
                gone := gone + 1;
                CONTINUE;
            END IF;
        END IF;
        asked_versions := asked_versions || source.version;
        asked_chunks := asked_chunks || coalesce(chunks, ARRAY(SELECT c.id FROM cortex.chunk c WHERE c.version_id = source.version));
        IF chunks IS NOT NULL AND open IS NULL THEN
            already := already + 1;
            CONTINUE;
        END IF;
        SELECT j.id, j.state, j.attempts, j.run_after, (j.payload ->> 'version')::bigint AS version INTO job
          FROM cortex.job j WHERE j.namespace_id = ns AND j.kind = 'build' AND j.payload ->> 'source' = source.id::text;
        IF FOUND THEN
            IF job.state = 'ready' AND job.attempts > 0 AND job.run_after > clock_timestamp()
               OR job.state = 'dead' AND job.version = source.version AND job.run_after >= clock_timestamp() - interval '1 hour' THEN
                backing_off := backing_off + 1;
                CONTINUE;
            ELSIF job.state <> 'dead' THEN
                leads := true;
                already := already + 1;
                CONTINUE;
            END IF;
        END IF;
        class := cortex._build_class(source.id, source.version);
        IF NOT cortex._build_queue(ns, source.id, source.version, open) THEN
            already := already + 1;
            CONTINUE;
        END IF;
        leads := true;
        queued := queued + 1;
        IF class = 'NOVEL' THEN
            novel := novel || source.id;
        ELSE
            PERFORM cortex._report(ns, 'rebuild_triggered_by_read', jsonb_build_object('source_id', source.id,
                'unit_id', (SELECT max(u.id) FROM cortex.unit u
                             WHERE u.source_id = source.id AND u.purpose = 'model' AND u.evicted_by IS NULL),
                'reason', CASE class WHEN 'THIN' THEN 'thin' ELSE 'stale' END), '{"rebuilds_by_read": 1}');
        END IF;
    END LOOP;
    IF cardinality(novel) > 0 THEN
        PERFORM cortex._report(ns, 'build_triggered_by_gap',
            jsonb_build_object('sources', to_jsonb(novel)), jsonb_build_object('builds_by_gap', cardinality(novel)));
    END IF;

    -- Kept is only what led or leads to a build, and is about one of its chunks: who may only read shall not be able to
    -- make any question count as built.
    IF embedding IS NOT NULL AND leads THEN
        SELECT s.id, coalesce((settings ->> 'coverage_floor')::float8, s.coverage_floor) INTO space, coverage_floor
          FROM cortex.namespace n JOIN cortex.space s ON s.id = n.space_id WHERE n.id = ns;
        SELECT n.nspname INTO vector_schema
          FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector';
        EXECUTE format($q$
            SELECT EXISTS (
                SELECT FROM (SELECT unnest($1) AS id
                             UNION ALL
                             SELECT c.id FROM cortex.claim c WHERE c.version_ids && $2 AND c.chunk_ids && $1 AND c.namespace_id = $3) i
                  JOIN cortex.%2$I e ON e.item_id = i.id
                 WHERE 1 - (e.embedding OPERATOR(%1$I.<=>) $4::%1$I.vector) >= $5)$q$, vector_schema, 'emb_' || space)
            INTO near USING asked_chunks, asked_versions, ns, embedding, coverage_floor;
    END IF;
    IF near THEN
        -- What was built for the same question before, of other sources, stays a part of it: if one of them changes,
        -- the fresh ones must not stand for it.
        EXECUTE format($q$
            SELECT $1 || coalesce(array_agg(DISTINCT v.id), '{}'),
                   $2 || coalesce((SELECT array_agg(DISTINCT c.id) FROM cortex.chunk c
                                    WHERE c.version_id = ANY (array_agg(v.id)) AND c.id = ANY (array_agg(k.id))), '{}')
              FROM cortex.question q
              CROSS JOIN unnest(q.version_ids) w (id)
              JOIN cortex.source_version v ON v.id = w.id AND v.closed_by IS NULL
              LEFT JOIN unnest(q.chunk_ids) k (id) ON true
             WHERE q.namespace_id = $3 AND q.space_id = $4 AND 1 - (q.embedding OPERATOR(%1$I.<=>) $5::%1$I.vector) >= $6
               AND NOT EXISTS (SELECT FROM cortex.source_version a WHERE a.id = ANY ($1) AND a.source_id = v.source_id)$q$,
            vector_schema)
            INTO asked_versions, asked_chunks
            USING asked_versions, asked_chunks, ns, space, embedding, (settings ->> 'reuse_threshold')::float8;
        found_digest := sha256(convert_to(concat_ws(' ', embedding::text, asked_versions::text, asked_chunks::text), 'UTF8'));
        IF NOT EXISTS (SELECT FROM cortex.question q WHERE q.namespace_id = ns AND q.space_id = space AND q.digest = found_digest) THEN
            INSERT INTO cortex.question (namespace_id, space_id, embedding, version_ids, chunk_ids, digest)
            VALUES (ns, space, embedding, asked_versions, asked_chunks, found_digest);
            -- No more than 2,000 of a namespace. What another want is removing is passed over: nothing here waits.
            DELETE FROM cortex.question q WHERE q.id IN (
                SELECT g.id FROM cortex.question g
                 WHERE g.namespace_id = ns AND g.id <= (
                       SELECT o.id FROM cortex.question o WHERE o.namespace_id = ns ORDER BY o.id DESC OFFSET 2000 LIMIT 1)
                   FOR UPDATE SKIP LOCKED);
        END IF;
    END IF;
    RETURN jsonb_build_object('queued', queued, 'already', already, 'backing_off', backing_off, 'gone', gone);
END
$$;

-- The ids of a JSON array from outside.
CREATE FUNCTION cortex._ids(given jsonb, what text) RETURNS bigint[]
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF jsonb_array_length(given) > 10000 OR EXISTS (
        SELECT FROM jsonb_array_elements(given) e
         WHERE jsonb_typeof(e) <> 'number' OR (e #>> '{}')::numeric % 1 <> 0
            OR (e #>> '{}')::numeric NOT BETWEEN -9223372036854775808 AND 9223372036854775807) THEN
        RAISE EXCEPTION '% is %, not an array of at most 10000 ids', what, left(given::text, 200)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN ARRAY(SELECT (e #>> '{}')::numeric::bigint FROM jsonb_array_elements(given) WITH ORDINALITY x (e, n) ORDER BY n);
END
$$;

-- The sealer's part: where builds are eager, lists the versions that were chunked for cortex_build_take to queue.
-- Queueing them here could make the sealer wait for a reader's transaction.
CREATE FUNCTION cortex._plan_eager(numbered bigint[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    eager constant integer[] := ARRAY(
        SELECT p.namespace_id FROM cortex.pool_setting p
         WHERE p.settings ->> 'builder' = 'model' AND p.settings ->> 'build_when' = 'eager');
BEGIN
    IF eager = '{}' THEN
        RETURN;
    END IF;
    INSERT INTO cortex.job (namespace_id, kind, payload, total)
    SELECT namespace_id, 'plan', jsonb_build_object('versions', jsonb_agg(version_id ORDER BY version_id)), count(*)
      FROM (SELECT d.namespace_id, d.version_id, (row_number() OVER (PARTITION BY d.namespace_id ORDER BY d.version_id) - 1) / 200 AS slice
              FROM cortex.document d JOIN cortex.source_version v ON v.id = d.version_id AND v.closed_by IS NULL
             WHERE d.added_by = ANY (numbered) AND d.namespace_id = ANY (eager) AND d.chunk_count > 0) n
     GROUP BY namespace_id, slice;
END
$$;

-- Makes build jobs of one list of the sealer's, if there is one. A source that someone is queueing at this moment
-- stays on the list.
CREATE FUNCTION cortex._plan_builds(among integer[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    plan cortex.job;
    version record;
    left_over bigint[] := '{}';
BEGIN
    SELECT * INTO plan FROM cortex.job j
     WHERE j.kind = 'plan' AND j.state = 'ready' AND j.run_after <= clock_timestamp() AND j.namespace_id = ANY (among)
     ORDER BY j.run_after, j.id LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR version IN
        SELECT v.id, v.source_id FROM jsonb_array_elements_text(plan.payload -> 'versions') e
          JOIN cortex.source_version v ON v.id = e::bigint AND v.closed_by IS NULL
    LOOP
        IF NOT cortex._build_queue(plan.namespace_id, version.source_id, version.id, NULL)
           AND NOT EXISTS (SELECT FROM cortex.job j WHERE j.namespace_id = plan.namespace_id AND j.kind = 'build'
                              AND j.payload ->> 'source' = version.source_id::text) THEN
            left_over := left_over || version.id;
        END IF;
    END LOOP;
    IF left_over = '{}' THEN
        DELETE FROM cortex.job j WHERE j.id = plan.id;
    ELSE
        UPDATE cortex.job j SET payload = jsonb_build_object('versions', to_jsonb(left_over)),
               run_after = clock_timestamp() + interval '1 second' WHERE j.id = plan.id;
    END IF;
END
$$;

-- Copies the claims that models drew from an earlier version of a source and that cite only chunks whose text this
-- version has as well, under the same title: no model needs to read them again. Answers with the number copied; NULL
-- if there was nothing to carry over.
CREATE FUNCTION cortex._carry_claims(ns integer, of_source bigint, of_version bigint) RETURNS integer
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    earlier cortex.unit;
    old_chunks bigint[];
    new_chunks bigint[];
    old_claims bigint[];
    claims jsonb;
    unit bigint;
    ids bigint[];
    space integer;
    copied bigint := 0;
BEGIN
    SELECT u.* INTO earlier
      FROM cortex.unit u
      JOIN cortex.document was ON was.version_id = u.version_id
      JOIN cortex.document now ON now.version_id = of_version AND now.title IS NOT DISTINCT FROM was.title
     WHERE u.source_id = of_source AND u.purpose = 'model' AND u.evicted_by IS NULL AND u.version_id < of_version
     ORDER BY u.version_id DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- Blanks at the end of a chunk are what parts it from the next. The n-th of several equal chunks goes with the n-th.
    SELECT array_agg(was.id ORDER BY was.id), array_agg(now.id ORDER BY was.id) INTO old_chunks, new_chunks
      FROM (SELECT c.id, b.body, row_number() OVER (PARTITION BY b.body ORDER BY c.ordinal) AS n
              FROM cortex.unit_chunk k JOIN cortex.chunk c ON c.id = k.chunk_id
              CROSS JOIN LATERAL (SELECT rtrim(c.body, E' \t\r\n') COLLATE "C" AS body) b WHERE k.unit_id = earlier.id) was
      JOIN (SELECT c.id, b.body, row_number() OVER (PARTITION BY b.body ORDER BY c.ordinal) AS n
              FROM cortex.chunk c
              CROSS JOIN LATERAL (SELECT rtrim(c.body, E' \t\r\n') COLLATE "C" AS body) b WHERE c.version_id = of_version) now ON now.body = was.body AND now.n = was.n;
    IF old_chunks IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(c.id ORDER BY c.ordinal), jsonb_agg(jsonb_build_object('claim', c.body, 'chunks',
               (SELECT jsonb_agg(new_chunks[array_position(old_chunks, o.id)] ORDER BY o.n)
                  FROM unnest(c.chunk_ids) WITH ORDINALITY o (id, n))) ORDER BY c.ordinal)
      INTO old_claims, claims
      FROM cortex.claim c WHERE c.unit_id = earlier.id AND c.chunk_ids <@ old_chunks;

    INSERT INTO cortex.unit (namespace_id, source_id, version_id, purpose, builder, added_by)
    VALUES (ns, of_source, of_version, 'model', earlier.builder, cortex._change_id(ns)) RETURNING id INTO unit;
    -- A chunk that an uncopied claim cites as well has lost a part of what was drawn from it: it is built again.
    INSERT INTO cortex.unit_chunk (unit_id, chunk_id, namespace_id, version_id, claim_count, carried_from, added_by)
    SELECT unit, o.new, ns, of_version, (SELECT count(*) FROM jsonb_array_elements(coalesce(claims, '[]')) e WHERE e -> 'chunks' @> to_jsonb(o.new)),
           o.old, cortex._change_id(ns)
      FROM unnest(old_chunks, new_chunks) o (old, new)
     WHERE NOT EXISTS (SELECT FROM cortex.claim c
                        WHERE c.unit_id = earlier.id AND o.old = ANY (c.chunk_ids) AND NOT c.chunk_ids <@ old_chunks);
    IF claims IS NULL THEN
        RETURN 0;
    END IF;
    ids := cortex._add_claims(ns, unit, of_version, claims, NULL, 0, 0);
    PERFORM pg_advisory_xact_lock_shared(1668248697, ns);
    FOR space IN SELECT s.id FROM cortex.namespace n JOIN cortex.space s ON s.id IN (n.space_id, n.next_space_id) WHERE n.id = ns LOOP
        EXECUTE format($q$
            INSERT INTO cortex.%1$I (item_id, version_id, added_by, namespace_id, target, embedding)
            SELECT o.new, $3, cortex._change_id($4), $4, 'c', e.embedding
              FROM unnest($1, $2) o (old, new) JOIN cortex.%1$I e ON e.item_id = o.old$q$, 'emb_' || space)
            USING old_claims, ids, of_version, ns;
        GET DIAGNOSTICS copied = ROW_COUNT;
        PERFORM cortex._embed_queue(ns, space, ids, cardinality(ids) - copied);
    END LOOP;
    RETURN cardinality(ids);
END
$$;

-- Queues the vectors that new items lack in a space; none: nothing to do.
CREATE FUNCTION cortex._embed_queue(ns integer, space integer, ids bigint[], missing bigint) RETURNS void
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO cortex.job (namespace_id, kind, payload, total)
    SELECT ns, 'embed', jsonb_build_object('space', space, 'from', min(i), 'to', max(i)), missing
      FROM unnest(ids) i WHERE missing > 0 AND space IS NOT NULL HAVING count(*) > 0
$$;

-- Chunks that the next build of a job gets: those it names, or all of the version, that no build has been through;
-- as many as a small model reads at once.
CREATE FUNCTION cortex._build_chunks(of_version bigint, named bigint[]) RETURNS bigint[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT array_agg(q.id ORDER BY q.ordinal)
      FROM (SELECT c.id, c.ordinal, row_number() OVER w AS n, sum(c.tokens) OVER w AS total
              FROM cortex.chunk c
             WHERE c.version_id = of_version AND (named IS NULL OR c.id = ANY (named)) AND NOT cortex._covered(c.id)
            WINDOW w AS (ORDER BY c.ordinal)) q
     WHERE q.n = 1 OR (q.n <= 16 AND q.total <= 6000)
$$;
