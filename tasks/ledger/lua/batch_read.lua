-- Reads batches.   own: id...   reply: per id {hash, now, states of its tasks, rows of the running one that ended}
-- uses: job_records
local out = {}
for i = OWN, #ARGV do
  local id, states = ARGV[i], {}
  for _, stage in ipairs({'validate', 'embed', 'assemble'}) do states[#states + 1] = task_state(id .. '-' .. stage) end
  local completed, failed = task_counts(id .. '-embed')
  out[#out + 1] = {call('HGETALL', record_key('batch', id)), NOW, states, {completed, failed}}
end
return out
