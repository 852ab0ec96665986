-- Deletes a batch or an ingestion that has ended. Its owner sees it no more from here on; a step removes what it has left
-- elsewhere, and then the record itself (`batch_close.lua`, `ingestion_close.lua`).
-- own: id kind ("batch") kinds ("batches")   reply: {1 deleted, the status or ''}
-- uses: litter
allowed_when_full()
local id, kind, kinds = arg(1), arg(2), arg(3)
local ENDED = {completed = true, failed = true, cancelled = true, expired = true}
local key = R .. ':' .. kind .. ':' .. id
local f = call('HMGET', key, 'status', 'owner', 'alias')
if not f[1] or not ENDED[f[1]] then return {0, f[1] or ''} end
call('HSET', key, 'deleted_at', int(NOW))
call('ZREM', R .. ':' .. kinds .. ':' .. f[2], id)
local alias_at = f[3] and R .. ':' .. kind .. '-alias:' .. f[2] .. ':' .. f[3]
if alias_at and string.match(call('GET', alias_at) or '', '^%S+') == id then call('UNLINK', alias_at) end
call('SADD', R .. ':open-' .. kinds, id)
litter(kinds .. '/' .. id .. '/ ' .. f[2], NOW)
wake_steps()
return {1, f[1]}
