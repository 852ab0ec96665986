-- Removes the record of a batch or of an ingestion that was purged, when nothing is left of it elsewhere.
-- own: id kind ("batch") kinds ("batches")   reply: 1 it was there
-- uses: litter
allowed_when_full()
local id, kind, kinds = arg(1), arg(2), arg(3)
local key = R .. ':' .. kind .. ':' .. id
local owner = call('HGET', key, 'owner')
if not owner then return 0 end
call('SREM', R .. ':open-' .. kinds, id)
no_litter(kinds .. '/' .. id .. '/ ' .. owner)
call('ZREM', R .. ':' .. kinds .. ':' .. owner, id)
if kind == 'batch' then call('ZREM', R .. ':batches-open:' .. owner, id)
else
  call('SREM', R .. ':ingesting:' .. owner, id)
  for _, part in ipairs({'waiting', 'pages', 'closed'}) do call('UNLINK', R .. ':ingestion-' .. part .. ':' .. id) end
end
call('UNLINK', key)
return 1
