-- An ingestion has ended and nothing is left to do for it. One that was deleted goes, if the caller knew of that.
-- own: id deleted   reply: 1 it was open
allowed_when_full()
local id, key = arg(1), R .. ':ingestion:' .. arg(1)
local f = call('HMGET', key, 'status', 'deleted_at')
if f[1] and f[1] ~= 'completed' and f[1] ~= 'failed' and f[1] ~= 'cancelled' then return 0 end -- tried again
call('UNLINK', R .. ':ingestion-pages:' .. id)
if f[2] then
  if arg(2) == '0' then return 0 end    -- there is more to remove
  call('UNLINK', key, R .. ':ingestion-waiting:' .. id, R .. ':ingestion-closed:' .. id)
end
return call('SREM', R .. ':open-ingestions', id)
