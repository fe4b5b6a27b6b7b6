-- A worker without a model: hands the prepared vectors out one after another, in the protocol of a real one.
CREATE TABLE public.prepared (n integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, e vector(384) NOT NULL);

-- Goes on embedding until `stored` items have a vector, and tells how long the commits took, in milliseconds:
-- storing and indexing, no model.
CREATE PROCEDURE public.embed(up_to bigint, INOUT stored bigint, INOUT commit_ms double precision) LANGUAGE plpgsql AS $$
DECLARE
    job bigint;
    items bigint[];
    vectors vector[];
    began timestamptz;
BEGIN
    commit_ms := 0;
    LOOP
        EXIT WHEN stored >= up_to;
        SELECT t.job_id INTO job FROM cortex_job_take('bench', ARRAY['embed']) t;
        EXIT WHEN job IS NULL;
        LOOP
            SELECT array_agg(t.item_id ORDER BY t.item_id) INTO items FROM cortex_embed_take(job, 'bench', 500) t;
            SELECT coalesce(array_agg(p.e), '{}') INTO vectors
              FROM prepared p WHERE p.n > stored AND p.n <= stored + cardinality(items);
            began := clock_timestamp();
            PERFORM cortex_embed_commit(job, 'bench', coalesce(items, '{}'), vectors);
            COMMIT;
            commit_ms := commit_ms + extract(epoch FROM clock_timestamp() - began) * 1000;
            EXIT WHEN items IS NULL;
            stored := stored + cardinality(items);
        END LOOP;
    END LOOP;
END
$$;
