-- Some of the ingestions that need a step, drawn by chance so that none waits for ever.   own: limit   reply: ids
allowed_when_full()
local found = {}
for _, id in ipairs(call('SRANDMEMBER', R .. ':open-ingestions', arg(1))) do
  if call('EXISTS', R .. ':ingestion:' .. id) == 1 then found[#found + 1] = id
  else call('SREM', R .. ':open-ingestions', id) end
end
return found
