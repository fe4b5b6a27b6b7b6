-- The adaptive gate of reads: how good a match of claims to foreign questions is by chance.

CREATE TABLE cortex.pool_gate (
    namespace_id integer NOT NULL,
    space_id integer NOT NULL,
    ceiling float8 NOT NULL DEFAULT 0,
    probes integer NOT NULL DEFAULT 0,
    builds_since integer NOT NULL DEFAULT 0,
    measured_at timestamptz,
    CONSTRAINT pool_gate_pkey PRIMARY KEY (namespace_id, space_id),
    CONSTRAINT pool_gate_namespace_fkey FOREIGN KEY (namespace_id) REFERENCES cortex.namespace (id),
    CONSTRAINT pool_gate_space_fkey FOREIGN KEY (space_id) REFERENCES cortex.space (id)
);
SELECT pg_catalog.pg_extension_config_dump('cortex.pool_gate', '');

-- Measures the noise ceiling of a namespace in its space. Probes are questions whose builds are all there and fresh; the
-- sample depends on their ids alone. Each is compared with the claims of sources that were not built for it.
CREATE FUNCTION cortex_gate_measure(namespace text) RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ns constant integer := cortex._namespace_must(namespace);
    space integer;
    vector_schema text;
    ids bigint[];
    at integer;
    greatest_cosine float8;
    found float8[] := '{}';
    ceiling float8;
    scan_before constant text := coalesce(nullif(current_setting('hnsw.iterative_scan', true), ''), 'off');
BEGIN
    SELECT n.space_id INTO space FROM cortex.namespace n WHERE n.id = ns;
    IF space IS NULL THEN
        RETURN jsonb_build_object('space', NULL, 'ceiling', 0, 'probes', 0);
    END IF;
    SELECT n.nspname INTO vector_schema
      FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector';
    SELECT coalesce(array_agg(q.id ORDER BY q.id), '{}') INTO ids
      FROM cortex.question q WHERE q.namespace_id = ns AND q.space_id = space AND cortex._question_built(q.id);
    -- Foreign claims can lie behind many of the question's own. In this order the first is not always the nearest.
    PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true);
    FOREACH at IN ARRAY cortex._gate_sample(ids) LOOP
        EXECUTE format($q$
            SELECT max(near.cosine) FROM (
                SELECT 1 - (e.embedding OPERATOR(%1$I.<=>) q.embedding) AS cosine
                  FROM cortex.question q, cortex.%2$I e JOIN cortex.source_version v ON v.id = e.version_id AND v.closed_by IS NULL
                 WHERE q.id = $1 AND e.namespace_id = $2 AND e.target = 'c'
                   AND NOT EXISTS (SELECT FROM cortex.source_version o WHERE o.id = ANY (q.version_ids) AND o.source_id = v.source_id)
                 ORDER BY e.embedding OPERATOR(%1$I.<=>) (SELECT p.embedding FROM cortex.question p WHERE p.id = $1) LIMIT 40) near$q$,
            vector_schema, 'emb_' || space) INTO greatest_cosine USING ids[at], ns;
        found := found || coalesce(greatest_cosine, 0);
    END LOOP;
    PERFORM set_config('hnsw.iterative_scan', scan_before, true);
    ceiling := cortex._gate_ceiling(found);
    INSERT INTO cortex.pool_gate (namespace_id, space_id, ceiling, probes, builds_since, measured_at)
    VALUES (ns, space, ceiling, cardinality(found), 0, clock_timestamp())
    ON CONFLICT ON CONSTRAINT pool_gate_pkey DO UPDATE
       SET ceiling = excluded.ceiling, probes = excluded.probes, builds_since = 0, measured_at = excluded.measured_at;
    RETURN jsonb_build_object('space', space, 'ceiling', ceiling, 'probes', cardinality(found));
END
$$;

-- A build was stored: measures again where the rule says so and no absolute gate is set.
CREATE FUNCTION cortex._gate_built(ns integer) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    name text;
    space integer;
    state cortex.pool_gate;
BEGIN
    SELECT n.name, n.space_id INTO name, space FROM cortex.namespace n WHERE n.id = ns;
    IF space IS NULL OR cortex._pool_settings(ns) ->> 'gate' IS NOT NULL THEN
        RETURN;
    END IF;
    INSERT INTO cortex.pool_gate AS g (namespace_id, space_id, builds_since) VALUES (ns, space, 1)
        ON CONFLICT ON CONSTRAINT pool_gate_pkey DO UPDATE SET builds_since = g.builds_since + 1
        RETURNING * INTO state;
    IF cortex._gate_due(state.ceiling, state.builds_since) THEN
        PERFORM @extschema@.cortex_gate_measure(name);
    END IF;
END
$$;

-- The cosine below which a claim of a space covers no question: a property of the model, found by measuring.
CREATE FUNCTION cortex_space_calibrate(space integer, coverage_floor float8) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF coverage_floor IS NULL OR NOT coverage_floor > 0 OR NOT coverage_floor < 1 THEN
        RAISE EXCEPTION 'a coverage_floor of % is not between 0 and 1', coalesce(coverage_floor::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE cortex.space s SET coverage_floor = cortex_space_calibrate.coverage_floor WHERE s.id = space;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no embedding space %', space USING ERRCODE = 'undefined_object',
            HINT = 'cortex_space_register makes one.';
    END IF;
END
$$;
