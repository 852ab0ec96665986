-- Some of the batches that need a step, drawn by chance so that none has to wait for ever.   own: limit   reply: ids
allowed_when_full()
local found = {}
for _, id in ipairs(call('SRANDMEMBER', R .. ':open-batches', arg(1))) do
  if call('EXISTS', R .. ':batch:' .. id) == 1 then found[#found + 1] = id
  else call('SREM', R .. ':open-batches', id) end
end
return found
