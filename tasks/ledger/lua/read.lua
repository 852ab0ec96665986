-- Reads tasks.   own: with_result id...   reply: per id {hash, pttl, metadata, now, result hash}
-- One script instead of a pipeline, so that state and result are of the same moment.
local with_result = arg(1) == '1'
local out = {}
for i = FIRST + 2, #ARGV do
  local id = ARGV[i]
  out[#out + 1] = {
    call('HGETALL', task_key(id)), call('PTTL', task_key(id)), call('GET', meta_key(id)) or '', NOW,
    with_result and call('HGETALL', result_key(id)) or {},
  }
end
return out
