-- The peers of a read: bare pgvector over the very vectors that the extension holds, with an HNSW index of
-- the same parameters, and PostgreSQL's own full-text search over the same chunks.
CREATE SCHEMA peer;
CREATE TABLE peer.claim (id bigint PRIMARY KEY, e vector(384) NOT NULL);
CREATE TABLE peer.chunk (id bigint PRIMARY KEY, e vector(384) NOT NULL);
CREATE TABLE peer.words (id bigint PRIMARY KEY, body text NOT NULL, words tsvector NOT NULL);

INSERT INTO peer.words
SELECT c.id, c.body, to_tsvector('english', d.title || ' ' || c.body)
  FROM cortex.chunk c JOIN cortex.document d ON d.version_id = c.version_id;
CREATE INDEX words_words_idx ON peer.words USING gin (words);
