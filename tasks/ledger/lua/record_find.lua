-- The record that an idempotency key names.   own: kind alias digest   reply: {'joined', id} | {'conflict'} | {}
-- uses: records
return known_record(ARGV[OWN], ARGV[OWN + 1], ARGV[OWN + 2]) or {}
