-- Stores a batch, or finds the one that its alias names.   own: window_ms ttl_ms, then as RECORD_CREATE; reply: likewise
-- uses: job_records
local window_ms, ttl_ms = ARGV[OWN], ARGV[OWN + 1]
local reply, new = create_record(OWN + 2)
if new then
  call('HSET', record_key('batch', reply[2]), 'status', 'validating', 'created', int(NOW), 'expires', int(NOW + window_ms),
    'ttl', ttl_ms)
  wake_steps()
end
save_sums()
return reply
