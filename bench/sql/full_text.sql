CREATE TABLE public.peer_words (id bigint PRIMARY KEY, words tsvector NOT NULL);
CREATE INDEX peer_words_words_idx ON public.peer_words USING gin (words);
