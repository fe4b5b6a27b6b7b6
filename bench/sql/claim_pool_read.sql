\set n random(0, :questions - 1)
SELECT payload, tokens FROM cortex_read('what is known', (SELECT q.e FROM question q WHERE q.n = :n), 1000, mode => 'vector');
