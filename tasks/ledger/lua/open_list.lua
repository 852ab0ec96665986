-- Some of the batches or ingestions that need a step, drawn by chance so that none has to wait for ever.
-- own: limit kind ("batch") kinds ("batches")   reply: ids
allowed_when_full()
local open, ids = R .. ':open-' .. arg(3), {}
for _, id in ipairs(call('SRANDMEMBER', open, arg(1))) do
  if call('EXISTS', R .. ':' .. arg(2) .. ':' .. id) == 1 then ids[#ids + 1] = id
  else call('SREM', open, id) end
end
return ids
