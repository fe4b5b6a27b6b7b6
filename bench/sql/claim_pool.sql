-- Loads a pool through the product's own path: cortex_source_put chunks, the embed protocol stores vectors.
CREATE TABLE public.given_source (n integer PRIMARY KEY, body text NOT NULL);
CREATE TABLE public.given_vector (n integer PRIMARY KEY, e vector(384) NOT NULL);
CREATE TABLE public.question (n integer PRIMARY KEY, e vector(384) NOT NULL);

CREATE FUNCTION public.put(n integer, body text) RETURNS jsonb LANGUAGE sql AS $$
    SELECT cortex_source_put(format('source-%s', n), body, title => format('Source %s', n), origin => 'bench', dated => '2026-01-01')
$$;

-- Sources of all rows, 500 in a transaction.
CREATE PROCEDURE public.put_all() LANGUAGE plpgsql AS $$
DECLARE
    last integer := (SELECT max(n) FROM given_source);
    first integer := 0;
BEGIN
    WHILE first <= last LOOP
        PERFORM put(g.n, g.body) FROM given_source g WHERE g.n >= first AND g.n < first + 500;
        COMMIT;
        first := first + 500;
    END LOOP;
END
$$;

-- Which of the given vectors an item has: claim i (from 1) of source n has number 10 n + i - 1,
-- its chunks, mostly one, have number (claims) + n.
CREATE FUNCTION public.vector_of(item bigint, claims integer) RETURNS vector LANGUAGE sql STABLE AS $$
    SELECT g.e FROM given_vector g WHERE g.n = coalesce(
        (SELECT 10 * substr(s.artifact_id, 8)::integer + c.ordinal - 1
           FROM cortex.claim c JOIN cortex.source_version v ON v.id = c.version_ids[1] JOIN cortex.source s ON s.id = v.source_id
          WHERE c.id = item),
        (SELECT claims + substr(s.artifact_id, 8)::integer
           FROM cortex.chunk c JOIN cortex.source_version v ON v.id = c.version_id JOIN cortex.source s ON s.id = v.source_id
          WHERE c.id = item))
$$;

-- A worker without a model, until nothing waits. The last vectors of a source stand for those of its new text.
CREATE PROCEDURE public.embed_all(claims integer) LANGUAGE plpgsql AS $$
DECLARE
    job bigint;
    items bigint[];
    vectors vector[];
BEGIN
    LOOP
        SELECT t.job_id INTO job FROM cortex_job_take('bench', ARRAY['embed']) t;
        EXIT WHEN job IS NULL;
        LOOP
            SELECT array_agg(t.item_id), array_agg(vector_of(t.item_id, claims)) INTO items, vectors
              FROM cortex_embed_take(job, 'bench', 500) t;
            PERFORM cortex_embed_commit(job, 'bench', coalesce(items, '{}'), coalesce(vectors, '{}'));
            COMMIT;
            EXIT WHEN items IS NULL;
        END LOOP;
    END LOOP;
END
$$;
