-- Reads batches.   own: id...   reply: per id {hash, now, states of its tasks, texts of the running one that ended}
local out = {}
for i = FIRST + 1, #ARGV do
  local id, states = ARGV[i], {}
  for _, stage in ipairs({'validate', 'embed', 'assemble'}) do
    states[#states + 1] = call('HGET', task_key(id .. '-' .. stage), 'state') or ''
  end
  out[#out + 1] = {call('HGETALL', R .. ':batch:' .. id), NOW, states,
    call('HMGET', task_key(id .. '-embed'), 'completed', 'failed')}
end
return out
