-- An ingestion has ended and nothing is left to do for it.   own: id   reply: 1 it was open
allowed_when_full()
local id = arg(1)
local status = call('HGET', R .. ':ingestion:' .. id, 'status')
if status and status ~= 'completed' and status ~= 'failed' and status ~= 'cancelled' then return 0 end -- tried again
call('UNLINK', R .. ':ingestion-pages:' .. id)
return call('SREM', R .. ':open-ingestions', id)
