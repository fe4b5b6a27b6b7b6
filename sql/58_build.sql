-- Builds: how a model's claims come in. The sidecar's worker uses exactly this, and so can anyone's own model.

CREATE FUNCTION cortex._build_take(in_namespace text, by_worker text, lease interval)
    RETURNS TABLE (job bigint, namespace_name text, artifact text, title text, origin text, dated text, class text,
                   versions bigint[], chunks jsonb, settings jsonb)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    me constant text := coalesce(nullif(by_worker, ''), 'session/' || pg_backend_pid());
    only_in constant integer := CASE WHEN in_namespace IS NOT NULL THEN cortex._namespace_must(in_namespace) END;
    among constant integer[] := ARRAY(
        SELECT p.namespace_id FROM cortex.pool_setting p
         WHERE p.settings ->> 'builder' = 'model' AND coalesce(p.settings ->> 'build_when', 'lazy') <> 'off'
           AND (only_in IS NULL OR p.namespace_id = only_in));
    held cortex.job;
    source record;
    named bigint[];
    widen integer;
    chosen bigint[];
    kind_of text;
    carried integer;
BEGIN
    PERFORM cortex._check_lease(lease);
    PERFORM cortex._jobs_expire();
    PERFORM cortex._plan_builds(among);
    -- Jobs that turn out to need no model are done on the way.
    FOR tries IN 1 .. 100 LOOP
        SELECT * INTO held FROM cortex.job j
         WHERE j.kind = 'build' AND j.state = 'ready' AND j.run_after <= clock_timestamp() AND j.namespace_id = ANY (among)
         ORDER BY j.run_after, j.id LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;

        SELECT s.id, s.artifact_id, n.name AS namespace, v.id AS version, d.title, d.origin, d.dated, d.version_id IS NOT NULL AS chunked,
               EXISTS (SELECT FROM cortex.hold h WHERE h.binding_id = s.binding_id AND h.released_by IS NULL) AS held
          INTO source
          FROM cortex.source s
          JOIN cortex.namespace n ON n.id = s.namespace_id
          JOIN cortex.source_version v ON v.source_id = s.id AND v.closed_by IS NULL
          LEFT JOIN cortex.document d ON d.version_id = v.id
         WHERE s.id = (held.payload ->> 'source')::bigint;
        IF NOT FOUND THEN
            DELETE FROM cortex.job j WHERE j.id = held.id;
            PERFORM cortex._report(held.namespace_id, 'build_stale',
                jsonb_build_object('job_id', held.id, 'source_id', held.payload -> 'source', 'reason', 'vanished'), '{"builds_stale": 1}');
            CONTINUE;
        END IF;
        IF source.held OR NOT source.chunked THEN
            UPDATE cortex.job j SET run_after = clock_timestamp() + interval '1 second' WHERE j.id = held.id;
            CONTINUE;
        END IF;

        kind_of := cortex._build_class(source.id, source.version);
        carried := NULL;
        IF kind_of = 'STALE-OWNED' THEN
            carried := cortex._carry_claims(held.namespace_id, source.id, source.version);
        END IF;
        -- Chunks named for another version: the whole of this one. Where builds are widened, so many of the source's first
        -- chunks beside those that a read wanted: next to each other they say more than alone.
        named := CASE WHEN (held.payload ->> 'version')::bigint = source.version AND held.payload ? 'chunks'
                      THEN cortex._ids(held.payload -> 'chunks', 'chunks') END;
        widen := (cortex._pool_settings(held.namespace_id) ->> 'widen_chunks')::numeric::integer;
        IF named IS NOT NULL AND widen IS NOT NULL THEN
            named := named || ARRAY(SELECT c.id FROM cortex.chunk c WHERE c.version_id = source.version AND NOT c.id = ANY (named)
                                     ORDER BY c.ordinal LIMIT widen);
        END IF;
        chosen := cortex._build_chunks(source.version, named);
        IF carried IS NOT NULL THEN
            PERFORM cortex._report(held.namespace_id, CASE WHEN chosen IS NULL THEN 'unit_built' END,
                CASE WHEN chosen IS NULL THEN jsonb_build_object('source_id', source.id, 'class', kind_of, 'admitted', 0, 'carried', carried) END,
                jsonb_build_object('claims_carried', carried));
        END IF;
        IF chosen IS NULL THEN
            DELETE FROM cortex.job j WHERE j.id = held.id;
            CONTINUE;
        END IF;

        UPDATE cortex.job j
           SET state = 'running', worker = me, lease_until = clock_timestamp() + lease, attempts = j.attempts + 1,
               payload = (j.payload - 'chunks') || jsonb_build_object('version', source.version,
                   'taken', jsonb_build_object('chunks', to_jsonb(chosen), 'class', kind_of, 'carried', coalesce(carried, 0)))
                   || CASE WHEN named IS NULL THEN '{}' ELSE jsonb_build_object('chunks', to_jsonb(named)) END
         WHERE j.id = held.id;
        -- A question whose version is closed can never be recognised again.
        DELETE FROM cortex.question q
         WHERE q.namespace_id = held.namespace_id
           AND (q.id <= (SELECT o.id FROM cortex.question o WHERE o.namespace_id = held.namespace_id ORDER BY o.id DESC OFFSET 2000 LIMIT 1)
                OR EXISTS (SELECT FROM cortex.source_version v WHERE v.id = ANY (q.version_ids) AND v.closed_by IS NOT NULL));
        RETURN QUERY
        SELECT held.id, source.namespace, source.artifact_id, source.title, source.origin, source.dated, kind_of, ARRAY[source.version],
               (SELECT jsonb_agg(jsonb_build_object('chunk_id', c.id, 'version_id', c.version_id, 'ordinal', c.ordinal, 'body', c.body)
                                 ORDER BY c.ordinal) FROM cortex.chunk c WHERE c.id = ANY (chosen)),
               cortex._pool_settings(held.namespace_id);
        RETURN;
    END LOOP;
END
$$;

-- One build to do, if there is any: the chunks that a model should read, with what heads them. A lease that runs out
-- counts as a failed attempt; cortex_job_heartbeat lengthens it.
CREATE FUNCTION cortex_build_take(namespace text DEFAULT NULL, worker text DEFAULT NULL, lease interval DEFAULT '60 seconds')
    RETURNS TABLE (job_id bigint, namespace text, artifact_id text, title text, origin text, dated text, class text,
                   version_ids bigint[], chunks jsonb, settings jsonb)
    LANGUAGE sql VOLATILE SECURITY DEFINER ROWS 1 SET search_path = pg_catalog, pg_temp
AS $$
    SELECT * FROM cortex._build_take($1, $2, $3)
$$;

-- The running build that a worker holds.
CREATE FUNCTION cortex._build_held(of_job bigint, by_worker text) RETURNS cortex.job
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held cortex.job := cortex._job_held(of_job, coalesce(nullif(by_worker, ''), 'session/' || pg_backend_pid()));
BEGIN
    IF held.kind <> 'build' OR NOT held.payload ? 'taken' THEN
        RAISE EXCEPTION 'job % is of kind %, not a build that cortex_build_take handed out', of_job, held.kind
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN held;
END
$$;

-- Checks a model's own account of a build and counts it: tokens are spent whatever comes of them. Without an account
-- no model was called.
CREATE FUNCTION cortex._build_usage(ns integer, INOUT usage jsonb)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    key text;
    called boolean;
BEGIN
    usage := coalesce(nullif(usage, 'null'), '{}');
    IF jsonb_typeof(usage) <> 'object' THEN
        RAISE EXCEPTION 'usage is a JSON %, not an object', jsonb_typeof(usage) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOREACH key IN ARRAY ARRAY['prompt_tokens', 'completion_tokens'] LOOP
        IF coalesce(usage -> key, 'null') = 'null' THEN
            usage := usage || jsonb_build_object(key, 0);
        ELSIF jsonb_typeof(usage -> key) <> 'number' OR (usage ->> key)::numeric NOT BETWEEN 0 AND 1000000000
              OR (usage ->> key)::numeric % 1 <> 0 THEN
            RAISE EXCEPTION 'usage: % is %, not a whole number from 0 to 1000000000', key, left((usage -> key)::text, 100)
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END LOOP;
    FOREACH key IN ARRAY ARRAY['model', 'tokenizer'] LOOP
        IF coalesce(usage -> key, 'null') <> 'null'
           AND (jsonb_typeof(usage -> key) <> 'string' OR char_length(usage ->> key) NOT BETWEEN 1 AND 200) THEN
            RAISE EXCEPTION 'usage: % is %, not a name of 1 to 200 characters', key, left((usage -> key)::text, 100)
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END LOOP;
    called := usage ->> 'model' IS NOT NULL OR (usage ->> 'prompt_tokens')::numeric + (usage ->> 'completion_tokens')::numeric > 0;
    usage := usage || jsonb_build_object('model', coalesce(usage ->> 'model', 'model'));
    IF NOT called THEN
        RETURN;
    END IF;
    PERFORM cortex._report(ns, NULL, NULL, jsonb_build_object('synth_calls', 1, 'prompt_tokens', (usage ->> 'prompt_tokens')::numeric::bigint,
        'completion_tokens', (usage ->> 'completion_tokens')::numeric::bigint), usage ->> 'model');
END
$$;

-- Stores what a model drew from the chunks of a build, as far as it is grounded in them, and ends the build or
-- queues what is left of it. If the source changed meanwhile, nothing is stored. `of_space` is the embedding space of the
-- vectors: if the namespace uses another by now, they are left out and the claims embedded again.
CREATE FUNCTION cortex_build_commit(job_id bigint, claims jsonb, vectors vector[] DEFAULT NULL, usage jsonb DEFAULT '{}', worker text DEFAULT NULL,
                                    of_space integer DEFAULT NULL)
    RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    held constant cortex.job := cortex._build_held(cortex_build_commit.job_id, cortex_build_commit.worker);
    ns constant integer := held.namespace_id;
    source constant bigint := (held.payload ->> 'source')::bigint;
    version constant bigint := (held.payload ->> 'version')::bigint;
    chunk_ids constant bigint[] := cortex._ids(held.payload -> 'taken' -> 'chunks', 'chunks');
    spent jsonb;
    space cortex.space;
    unit bigint;
    sifted jsonb;
    admitted jsonb;
    ids bigint[] := '{}';
    given integer := cardinality(cortex_build_commit.vectors);
    stored bigint := 0;
    change bigint;
    rest bigint[];
    next bigint;
BEGIN
    IF claims IS NULL OR jsonb_typeof(claims) <> 'array' OR jsonb_array_length(claims) > 1000 THEN
        RAISE EXCEPTION 'claims are %, not an array of at most 1000', CASE
                WHEN claims IS NULL THEN 'NULL'
                WHEN jsonb_typeof(claims) = 'array' THEN format('an array of %s', jsonb_array_length(claims))
                ELSE 'a JSON ' || jsonb_typeof(claims) END
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Each is {"claim": text, "chunks": [chunk_id, ..]} or a string.';
    END IF;
    IF given <> jsonb_array_length(claims) THEN
        RAISE EXCEPTION '% claims and % vectors', jsonb_array_length(claims), given USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Give one vector for each claim of the array, in its order, or none.';
    END IF;
    spent := cortex._build_usage(ns, usage);

    -- No other space can be put to use until the commit, or it would miss these claims.
    PERFORM pg_advisory_xact_lock_shared(1668248697, ns);
    SELECT s.* INTO space FROM cortex.namespace n JOIN cortex.space s ON s.id = n.space_id WHERE n.id = ns;
    IF given > 0 AND NOT EXISTS (SELECT FROM cortex.space s WHERE s.id = of_space) THEN
        RAISE EXCEPTION 'the vectors are of space %, which there is not', coalesce(of_space::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the space of the model that made them: of_space => cortex_space_register(..).';
    END IF;
    IF of_space <> space.id THEN
        given := 0;
    END IF;
    IF given > 0 THEN
        IF space.id IS NULL THEN
            RAISE EXCEPTION 'the namespace has no embedding space for vectors' USING ERRCODE = 'object_not_in_prerequisite_state',
                HINT = 'Commit without vectors, or put a space to use with cortex_space_use.';
        END IF;
        PERFORM cortex._vector_fits(v, space.dims, n) FROM unnest(vectors) WITH ORDINALITY u (v, n);
    END IF;

    IF NOT EXISTS (SELECT FROM cortex.source_version v WHERE v.id = version AND v.closed_by IS NULL) THEN
        DELETE FROM cortex.job j WHERE j.id = held.id;
        PERFORM cortex._report(ns, 'build_stale',
            jsonb_build_object('job_id', held.id, 'source_id', source, 'reason', 'changed'), '{"builds_stale": 1}');
        -- Where builds are eager, the sealer found this job and queued none for the new version.
        SELECT v.id INTO next FROM cortex.source_version v WHERE v.source_id = source AND v.closed_by IS NULL;
        IF next IS NOT NULL AND cortex._pool_settings(ns) ->> 'build_when' = 'eager' THEN
            INSERT INTO cortex.job (namespace_id, kind, payload, total) VALUES (ns, 'plan', jsonb_build_object('versions', ARRAY[next]), 1);
        END IF;
        RETURN jsonb_build_object('admitted', 0, 'dropped', cortex._sift_claims('[]', '{}', '{}', NULL, '{}') -> 'dropped', 'stale', true, 'unit_id', NULL);
    END IF;

    -- Waits for whoever is evicting the unit, and keeps others from it until the commit: no claim gets into an evicted one.
    SELECT u.id INTO unit FROM cortex.unit u
     WHERE u.version_id = version AND u.purpose = 'model' AND u.evicted_by IS NULL FOR SHARE;
    sifted := cortex._sift_claims(claims, chunk_ids,
        ARRAY(SELECT c.body FROM unnest(chunk_ids) WITH ORDINALITY k (id, n) JOIN cortex.chunk c ON c.id = k.id ORDER BY k.n),
        (SELECT d.title FROM cortex.document d WHERE d.version_id = version),
        ARRAY(SELECT c.body FROM cortex.claim c WHERE c.unit_id = unit));
    admitted := sifted -> 'admitted';
    change := cortex._change_id(ns);
    IF unit IS NULL THEN
        INSERT INTO cortex.unit (namespace_id, source_id, version_id, purpose, builder, added_by)
        VALUES (ns, source, version, 'model', spent ->> 'model', change) RETURNING id INTO unit;
    END IF;
    ids := cortex._add_claims(ns, unit, version, admitted, spent ->> 'model', (spent ->> 'prompt_tokens')::numeric::bigint,
                              (spent ->> 'completion_tokens')::numeric::bigint);
    INSERT INTO cortex.unit_chunk (unit_id, chunk_id, namespace_id, version_id, claim_count, added_by)
    SELECT unit, k.id, ns, version, (SELECT count(*) FROM jsonb_array_elements(admitted) a WHERE a -> 'chunks' @> to_jsonb(k.id)), change
      FROM unnest(chunk_ids) k (id)
    ON CONFLICT ON CONSTRAINT unit_chunk_pkey DO NOTHING;
    IF given > 0 THEN
        EXECUTE format($q$
            INSERT INTO cortex.%I (item_id, version_id, added_by, namespace_id, target, embedding)
            SELECT i.id, $4, $5, $6, 'c', v.embedding
              FROM unnest($1) WITH ORDINALITY i (id, place)
              JOIN jsonb_array_elements($2) WITH ORDINALITY a (told, place) ON a.place = i.place
              JOIN unnest($3) WITH ORDINALITY v (embedding, n) ON v.n = (a.told ->> 'n')::bigint AND v.embedding IS NOT NULL$q$, 'emb_' || space.id)
            USING ids, admitted, vectors, version, change, ns;
        GET DIAGNOSTICS stored = ROW_COUNT;
    END IF;
    PERFORM cortex._embed_queue(ns, space.id, ids, cardinality(ids) - stored);
    PERFORM cortex._embed_queue(ns, n.next_space_id, ids, cardinality(ids)) FROM cortex.namespace n WHERE n.id = ns;

    rest := cortex._build_chunks(version, CASE WHEN held.payload ? 'chunks' THEN cortex._ids(held.payload -> 'chunks', 'chunks') END);
    IF rest IS NULL THEN
        DELETE FROM cortex.job j WHERE j.id = held.id;
    ELSE
        UPDATE cortex.job j SET state = 'ready', worker = NULL, lease_until = NULL, attempts = 0, run_after = clock_timestamp(),
               progress = j.progress + cardinality(chunk_ids), payload = j.payload - 'taken' WHERE j.id = held.id;
    END IF;
    PERFORM cortex._gate_built(ns);
    PERFORM cortex._report(ns, 'unit_built', jsonb_build_object('unit_id', unit, 'source_id', source, 'job_id', held.id,
            'class', held.payload -> 'taken' -> 'class', 'admitted', cardinality(ids), 'carried', held.payload -> 'taken' -> 'carried',
            'dropped', sifted -> 'dropped', 'chunks', cardinality(chunk_ids), 'model', spent -> 'model',
            'tokens', (spent ->> 'prompt_tokens')::numeric + (spent ->> 'completion_tokens')::numeric),
        jsonb_build_object('builds', 1, 'claims_admitted', cardinality(ids),
            'dropped_blank', sifted -> 'dropped' -> 'blank', 'dropped_ungrounded', sifted -> 'dropped' -> 'ungrounded',
            'dropped_unknown_chunk', sifted -> 'dropped' -> 'unknown_chunk', 'dropped_too_long', sifted -> 'dropped' -> 'too_long',
            'dropped_repeated', sifted -> 'dropped' -> 'repeated', 'dropped_no_room', sifted -> 'dropped' -> 'no_room'));
    RETURN jsonb_build_object('admitted', cardinality(ids), 'dropped', sifted -> 'dropped', 'stale', false, 'unit_id', unit,
                              'vectors', stored);
END
$$;

-- Gives a build back: 'ready', to be taken again after 30 seconds that double up to an hour, or 'dead' after eight attempts.
CREATE FUNCTION cortex_build_fail(job_id bigint, reason text, usage jsonb DEFAULT '{}', worker text DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    held constant cortex.job := cortex._build_held(cortex_build_fail.job_id, cortex_build_fail.worker);
    state text;
BEGIN
    PERFORM cortex._build_usage(held.namespace_id, usage);
    state := cortex._job_failed(held.id, coalesce(reason, 'no reason given'), 8);
    -- A model that failed is asked again later than a worker whose lease ran out. A dead build waits for the next want.
    UPDATE cortex.job j SET run_after = clock_timestamp() + interval '1 second' * cortex._build_backoff(held.attempts)
     WHERE j.id = held.id AND j.state = 'ready';
    PERFORM cortex._report(held.namespace_id, 'build_failed', jsonb_build_object('job_id', held.id, 'source_id', held.payload -> 'source',
        'attempts', held.attempts, 'state', state), '{"builds_failed": 1}');
    RETURN state;
END
$$;
