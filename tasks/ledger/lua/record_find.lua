-- The record that an idempotency key names.
-- own: kind ("batch") owner alias digest   reply: {'joined', id} | {'conflict'} | {} there is none
-- uses: records
return repeated_record(arg(1), '', arg(2), arg(3), arg(4)) or {}
