-- So many transactions that each change one row, going round the table.
CREATE PROCEDURE public.change_rows(transactions integer) LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN 1 .. transactions LOOP
        UPDATE note SET body = overlay(body PLACING lpad(n::text, 8, '0') FROM 1 FOR 8)
         WHERE id = n % (SELECT max(id) FROM note) + 1;
        COMMIT;
    END LOOP;
END
$$;
