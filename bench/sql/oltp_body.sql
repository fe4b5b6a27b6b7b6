\set id random(1, :rows)
\set word random(1, 1000000000)
UPDATE doc SET body = overlay(body PLACING lpad(CAST(:word AS text), 10, '0') FROM 1 FOR 10) WHERE id = :id;
