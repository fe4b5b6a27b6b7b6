-- The work of derivers: numbering changes, and the queue.

-- Gives every visible, unnumbered change the next seq, records what each namespace now holds, and queues
-- the chunking of new versions. Only this function assigns a seq, one caller at a time, so state N is closed
-- once it can be seen: a transaction that commits later gets a later seq.
CREATE FUNCTION cortex_seal() RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    numbered bigint[];
    namespaces integer[];
    first_version bigint;
    last_version bigint;
BEGIN
    -- A snapshot older than the lock would number behind another sealer's back.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'cortex_seal() runs in READ COMMITTED only, and this transaction is %',
            upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'invalid_transaction_state', HINT = 'Call it in a transaction of its own.';
    END IF;
    PERFORM pg_advisory_xact_lock(1668248696, 1);  -- 'corx'
    PERFORM cortex._asks_expire();

    WITH waiting AS MATERIALIZED (
        SELECT id FROM cortex.change WHERE seq IS NULL ORDER BY id LIMIT 10000
    ), next AS MATERIALIZED (
        SELECT id, nextval('cortex.seq_seq') AS seq FROM waiting
    ), done AS (
        UPDATE cortex.change c SET seq = next.seq FROM next WHERE c.id = next.id
        RETURNING c.id, c.namespace_id
    )
    SELECT array_agg(id), array_agg(DISTINCT namespace_id) INTO numbered, namespaces FROM done;
    IF numbered IS NULL THEN
        PERFORM cortex._take_reports();
        RETURN 0;
    END IF;

    -- A document counts from the seal that finds its version open to the seal that finds it closed.
    WITH moved AS (
        SELECT d.namespace_id, d.chunk_count, d.chunk_terms, d.claim_count, d.claim_terms
          FROM cortex.document d
          JOIN cortex.source_version v ON v.id = d.version_id
          LEFT JOIN cortex.change closing ON closing.id = v.closed_by
         WHERE d.added_by = ANY (numbered) AND closing.seq IS NULL
        UNION ALL
        SELECT d.namespace_id, - d.chunk_count, - d.chunk_terms, - d.claim_count, - d.claim_terms
          FROM cortex.source_version v
          JOIN cortex.document d ON d.version_id = v.id
          JOIN cortex.change adding ON adding.id = d.added_by
         WHERE v.closed_by = ANY (numbered) AND adding.seq IS NOT NULL AND NOT d.added_by = ANY (numbered)
        UNION ALL
        SELECT m.namespace_id, 0, 0, m.claim_count, m.claim_terms FROM cortex._claims_moved(numbered) m
    ), net AS (
        SELECT namespace_id, sum(chunk_count) AS chunk_count, sum(chunk_terms) AS chunk_terms,
               sum(claim_count) AS claim_count, sum(claim_terms) AS claim_terms
          FROM moved GROUP BY namespace_id
    )
    INSERT INTO cortex.seal (namespace_id, seq, chunk_count, chunk_terms, claim_count, claim_terms)
    SELECT net.namespace_id,
           (SELECT max(c.seq) FROM cortex.change c WHERE c.namespace_id = net.namespace_id),
           net.chunk_count + coalesce(last.chunk_count, 0), net.chunk_terms + coalesce(last.chunk_terms, 0),
           net.claim_count + coalesce(last.claim_count, 0), net.claim_terms + coalesce(last.claim_terms, 0)
      FROM net
      LEFT JOIN LATERAL (
          SELECT s.* FROM cortex.seal s WHERE s.namespace_id = net.namespace_id ORDER BY s.seq DESC LIMIT 1
      ) last ON true;

    -- Versions are found by a range of ids, which is short unless one of the changes took long.
    SELECT min(c.after_version) + 1 INTO first_version FROM cortex.change c WHERE c.id = ANY (numbered);
    SELECT max(v.id) INTO last_version FROM cortex.source_version v;
    INSERT INTO cortex.job (namespace_id, kind, payload, total)
    SELECT c.namespace_id, 'chunk', jsonb_build_object('change', part.opened_by, 'from', part.low, 'to', part.high), part.n
      FROM (
          SELECT opened_by, min(id) AS low, max(id) AS high, count(*) AS n
            FROM (
                SELECT v.opened_by, v.id, (row_number() OVER (PARTITION BY v.opened_by ORDER BY v.id) - 1) / 1000 AS slice
                  FROM cortex.source_version v
                 WHERE v.id BETWEEN first_version AND last_version
                   AND v.opened_by = ANY (numbered) AND v.closed_by IS NULL
                   AND NOT EXISTS (SELECT FROM cortex.document d WHERE d.version_id = v.id)
            ) open
           GROUP BY opened_by, slice
      ) part
      JOIN cortex.change c ON c.id = part.opened_by;

    PERFORM cortex._plan_eager(numbered);
    PERFORM cortex._report_changes(numbered);
    PERFORM cortex._take_reports();
    RETURN cardinality(numbered);
END
$$;

CREATE FUNCTION cortex._check_lease(lease interval) RETURNS void
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF lease IS NULL OR lease < interval '1 second' OR lease > interval '1 hour' THEN
        RAISE EXCEPTION 'a lease of % is outside 1 second to 1 hour', lease USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

-- One job for this worker, if any is due. A lease that ran out counts as a failed attempt. Builds are taken with
-- cortex_build_take, which hands out what they need.
CREATE FUNCTION cortex_job_take(worker text, kinds text[] DEFAULT NULL, lease interval DEFAULT '60 seconds')
    RETURNS TABLE (job_id bigint, kind text, namespace text, payload jsonb, attempts integer)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    taken cortex.job;
BEGIN
    IF coalesce(worker, '') = '' THEN
        RAISE EXCEPTION 'a worker needs a name' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM cortex._check_lease(lease);
    PERFORM cortex._jobs_expire();
    UPDATE cortex.job j
       SET state = 'running', worker = cortex_job_take.worker, lease_until = clock_timestamp() + lease,
           attempts = j.attempts + 1
     WHERE j.id = (SELECT id FROM cortex.job
                    WHERE state = 'ready' AND run_after <= clock_timestamp() AND kind NOT IN ('build', 'plan') AND (kinds IS NULL OR kind = ANY (kinds))
                    ORDER BY run_after, id LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING j.* INTO taken;
    IF taken.id IS NULL THEN
        RETURN;
    END IF;
    IF taken.kind = 'embed' AND taken.attempts = 1 THEN
        PERFORM cortex._embed_join(taken);
    END IF;
    RETURN QUERY SELECT j.id, j.kind, n.name, j.payload, j.attempts
      FROM cortex.job j JOIN cortex.namespace n ON n.id = j.namespace_id WHERE j.id = taken.id;
END
$$;

-- The item ids of an embed job.
CREATE FUNCTION cortex._embed_ids(payload jsonb) RETURNS int8multirange
    LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT coalesce((payload ->> 'within')::int8multirange,
                    int8multirange(int8range((payload ->> 'from')::bigint, (payload ->> 'to')::bigint, '[]')));
END;

-- Joins to an embed job just taken those of the same namespace and space that wait as well: each transaction that
-- stores sources queues one, and a model is quick in batches only. Whoever takes joins, not whoever queues: a
-- writer that widened a job of others would hold their work back until its own commit. A job that failed before is
-- left alone, so that what cannot be embedded does not pull others down. Only small jobs are joined, up to the size
-- into which cortex_space_use cuts a whole namespace: its slices stay apart, for many workers. `within` lists the item
-- ids of the whole.
CREATE FUNCTION cortex._embed_join(taken cortex.job) RETURNS void
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    WITH due AS MATERIALIZED (
        SELECT j.id, j.total FROM cortex.job j
         WHERE j.namespace_id = (taken).namespace_id AND j.kind = 'embed' AND j.state = 'ready' AND j.attempts = 0
           AND j.run_after <= clock_timestamp() AND j.payload -> 'space' = (taken).payload -> 'space'
           AND j.total <= 300 AND (taken).total <= 300
         ORDER BY j.id LIMIT 1000 FOR UPDATE SKIP LOCKED
    ), waiting AS MATERIALIZED (
        SELECT s.id FROM (SELECT d.id, sum(greatest(d.total, 1)) OVER (ORDER BY d.id) AS items FROM due d) s
         WHERE s.items + (taken).total <= 2000
    ), joined AS (
        DELETE FROM cortex.job j USING waiting WHERE j.id = waiting.id RETURNING j.payload, j.total
    ), whole AS (
        SELECT range_agg(cortex._embed_ids(p.payload)) AS ids, sum(p.total) AS total
          FROM (SELECT * FROM joined UNION ALL SELECT (taken).payload, (taken).total) p
        HAVING count(*) > 1
    )
    UPDATE cortex.job j
       SET payload = j.payload || jsonb_build_object('from', lower(whole.ids), 'to', upper(whole.ids) - 1, 'within', whole.ids::text),
           total = whole.total
      FROM whole WHERE j.id = (taken).id;
END;

-- Running jobs whose lease ran out go back to the queue.
CREATE FUNCTION cortex._jobs_expire() RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM cortex._job_failed(j.id, format('the lease of worker %s ran out', j.worker), 8)
       FROM (SELECT id, worker FROM cortex.job WHERE state = 'running' AND lease_until < clock_timestamp()
              FOR UPDATE SKIP LOCKED) j;
END
$$;

-- The running job that `worker` holds, locked; an error if it lost it.
CREATE FUNCTION cortex._job_held(job_id bigint, worker text) RETURNS cortex.job
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held cortex.job;
BEGIN
    SELECT * INTO held FROM cortex.job j
     WHERE j.id = job_id AND j.state = 'running' AND j.worker = _job_held.worker FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'worker % does not hold job %', worker, job_id
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Its lease ran out, or the job is done. Take the next one.';
    END IF;
    RETURN held;
END
$$;

-- Back to the queue with backoff (1 s, 2 s, 4 s ... 5 min), or dead after `max_attempts`. Dead, `run_after` says since
-- when. With the greatest integer for `max_attempts` the job is only given back: the attempt does not count.
CREATE FUNCTION cortex._job_failed(job_id bigint, reason text, max_attempts integer) RETURNS text
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    UPDATE cortex.job j
       SET state = CASE WHEN j.attempts >= max_attempts THEN 'dead' ELSE 'ready' END,
           worker = NULL, lease_until = NULL, last_error = left(reason, 2000),
           attempts = CASE WHEN max_attempts = 2147483647 THEN greatest(j.attempts - 1, 0) ELSE j.attempts END,
           run_after = clock_timestamp() + CASE WHEN j.attempts >= max_attempts THEN interval '0'
               ELSE least(interval '1 second' * pg_catalog.power(2, least(j.attempts, 20) - 1), interval '5 minutes') END
     WHERE j.id = job_id
    RETURNING j.state;
END;

CREATE FUNCTION cortex_job_heartbeat(job_id bigint, worker text, lease interval DEFAULT '60 seconds') RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM cortex._check_lease(lease);
    UPDATE cortex.job j SET lease_until = clock_timestamp() + lease
     WHERE j.id = job_id AND j.state = 'running' AND j.worker = cortex_job_heartbeat.worker;
    RETURN FOUND;
END
$$;

CREATE FUNCTION cortex_job_fail(job_id bigint, worker text, reason text, max_attempts integer DEFAULT 8) RETURNS text
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held cortex.job := cortex._job_held(job_id, worker);
BEGIN
    IF max_attempts IS NULL OR max_attempts < 1 THEN
        RAISE EXCEPTION 'max_attempts is %, which is not 1 or more', coalesce(max_attempts::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN cortex._job_failed(held.id, coalesce(reason, 'no reason given'), max_attempts);
END
$$;

-- One batch of a job that needs no model. A finished job's row goes; its result is in the tables.
CREATE FUNCTION cortex_job_run(job_id bigint, worker text, batch integer DEFAULT 200) RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held cortex.job := cortex._job_held(job_id, worker);
    step record;
BEGIN
    IF batch IS NULL OR batch NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'a batch of % is outside 1 to 1000', batch USING ERRCODE = 'invalid_parameter_value';
    END IF;
    CASE held.kind
    WHEN 'chunk' THEN
        SELECT * INTO step FROM cortex._chunk_batch(
            held.namespace_id, (held.payload ->> 'change')::bigint,
            (held.payload ->> 'from')::bigint, (held.payload ->> 'to')::bigint, batch);
        held.payload := jsonb_set(held.payload, '{from}', to_jsonb(coalesce(step.last_version, (held.payload ->> 'to')::bigint) + 1));
    WHEN 'load' THEN
        SELECT b.rows::bigint AS rows, b.last IS NULL OR b.rows < batch AS done, b.last AS next INTO step
          FROM cortex._load_batch((held.payload ->> 'binding')::integer,
               CASE WHEN held.payload ? 'after' THEN ARRAY(SELECT jsonb_array_elements_text(held.payload -> 'after')) END, batch) b;
        held.payload := CASE WHEN step.next IS NULL THEN held.payload
                             ELSE jsonb_set(held.payload, '{after}', to_jsonb(step.next)) END;
    WHEN 'reconcile' THEN
        SELECT b.rows::bigint AS rows, b.next IS NULL AS done, b.next AS next INTO step
          FROM cortex._reconcile_batch(held.payload, batch) b;
        held.payload := coalesce(step.next, held.payload);
    WHEN 'upkeep' THEN
        PERFORM cortex._upkeep_run(held.namespace_id, (held.payload ->> 'space')::integer);
        SELECT 1::bigint AS rows, true AS done INTO step;
    ELSE
        RAISE EXCEPTION 'a job of kind % is not run by cortex_job_run', held.kind
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Use cortex_embed_take and cortex_embed_commit, or cortex_build_take and cortex_build_commit.';
    END CASE;

    IF step.done THEN
        DELETE FROM cortex.job j WHERE j.id = held.id;
    ELSE
        UPDATE cortex.job j SET payload = held.payload, progress = j.progress + step.rows,
               lease_until = greatest(j.lease_until, clock_timestamp() + interval '60 seconds')
         WHERE j.id = held.id;
    END IF;
    RETURN jsonb_build_object('done', step.done, 'rows', step.rows, 'progress', held.progress + step.rows, 'total', held.total);
END
$$;

-- Orders the chunking of a binding's current versions that have no document: what jobs left out while its rows could
-- not be read, or died with. Changes without a number are the sealer's.
CREATE FUNCTION cortex._chunk_requeue(of_binding integer) RETURNS bigint
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    WITH made AS (
        INSERT INTO cortex.job (namespace_id, kind, payload, total)
        SELECT c.namespace_id, 'chunk', jsonb_build_object('change', part.opened_by, 'from', part.low, 'to', part.high), part.n
          FROM (
              SELECT opened_by, min(id) AS low, max(id) AS high, count(*) AS n
                FROM (
                    SELECT v.opened_by, v.id, (row_number() OVER (PARTITION BY v.opened_by ORDER BY v.id) - 1) / 1000 AS slice
                      FROM cortex.source s JOIN cortex.source_version v ON v.source_id = s.id AND v.closed_by IS NULL
                     WHERE s.binding_id = of_binding
                       AND NOT EXISTS (SELECT FROM cortex.document d WHERE d.version_id = v.id)
                ) open
               GROUP BY opened_by, slice
          ) part
          JOIN cortex.change c ON c.id = part.opened_by AND c.seq IS NOT NULL
        RETURNING 1
    )
    SELECT count(*) FROM made;
END;

-- Puts a dead job back into the queue, or all of them: for when the cause is removed.
CREATE FUNCTION cortex_job_retry(job_id bigint DEFAULT NULL) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    retried bigint;
BEGIN
    UPDATE cortex.job j SET state = 'ready', attempts = 0, run_after = clock_timestamp()
     WHERE j.state = 'dead' AND (cortex_job_retry.job_id IS NULL OR j.id = cortex_job_retry.job_id);
    GET DIAGNOSTICS retried = ROW_COUNT;
    IF retried = 0 AND cortex_job_retry.job_id IS NOT NULL THEN
        RAISE EXCEPTION 'there is no dead job %', cortex_job_retry.job_id USING ERRCODE = 'undefined_object',
            HINT = 'View cortex.jobs lists them with the reason.';
    END IF;
    RETURN retried;
END
$$;

-- Everything but embedding, by hand: for databases without a sidecar, and for tests.
CREATE FUNCTION cortex_work(max_jobs integer DEFAULT 1000) RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    me constant text := 'cortex_work/' || pg_backend_pid();
    sealed bigint := 0;
    jobs integer := 0;
    batches integer := 0;
    failed integer := 0;
    job bigint;
    step jsonb;
BEGIN
    LOOP
        sealed := sealed + @extschema@.cortex_seal();
        EXIT WHEN jobs >= max_jobs;
        SELECT t.job_id INTO job FROM @extschema@.cortex_job_take(me, ARRAY['load', 'reconcile', 'chunk', 'upkeep']) t;
        EXIT WHEN job IS NULL;
        jobs := jobs + 1;
        -- A job that cannot be done goes back to wait, or dies with its reason; the others go on.
        BEGIN
            LOOP
                step := @extschema@.cortex_job_run(job, me);
                batches := batches + 1;
                EXIT WHEN (step ->> 'done')::boolean;
            END LOOP;
        EXCEPTION
            WHEN serialization_failure OR deadlock_detected THEN
                RAISE;
            WHEN OTHERS THEN
                failed := failed + 1;
                PERFORM cortex._job_failed(job, format('%s (SQLSTATE %s)', SQLERRM, SQLSTATE), 8);
        END;
    END LOOP;
    RETURN jsonb_build_object('sealed', sealed, 'jobs', jobs, 'batches', batches, 'failed', failed);
END
$$;
