\set id random(1, :rows)
UPDATE doc SET views = views + 1 WHERE id = :id;
