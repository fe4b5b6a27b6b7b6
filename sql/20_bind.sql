-- Internal functions of bindings: nobody calls them but cortex.
REVOKE ALL ON FUNCTION cortex._touch() FROM PUBLIC;
REVOKE ALL ON FUNCTION cortex._content_hash(bytea, text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION cortex._random_key() FROM PUBLIC;
REVOKE ALL ON FUNCTION cortex._change_id(integer) FROM PUBLIC;
