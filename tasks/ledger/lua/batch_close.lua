-- A batch has ended and nothing is left to do for it. One that was deleted goes, if the caller knew of that.
-- own: id deleted   reply: 1 it was open
allowed_when_full()
local id, key = arg(1), R .. ':batch:' .. arg(1)
if call('HEXISTS', key, 'deleted_at') == 1 then
  if arg(2) == '0' then return 0 end    -- there may be more to remove
  call('UNLINK', key)
end
return call('SREM', R .. ':open-batches', id)
