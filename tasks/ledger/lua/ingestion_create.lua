-- Stores an ingestion, or finds the one that its alias names.   own: ttl_ms, then as RECORD_CREATE; reply: likewise
-- uses: job_records
local reply, new = create_record(OWN + 1)
if new then
  -- Above every earlier one's. Not a plain count: a Redis that goes back, or begins anew, would give numbers again that
  -- receipts in a sink have already.
  local order = math.max(NOW, tonumber(call('GET', R .. ':ingestion-order') or 0) + 1)
  call('HSET', record_key('ingestion', reply[2]), 'status', 'queued', 'created', int(NOW), 'ttl', ARGV[OWN], 'order',
    int(order))
  call('SET', R .. ':ingestion-order', int(order))
  wake_steps()
end
save_sums()
return reply
