-- Removes lists and accounts of an owner who has nothing any more.   own: owner   reply: 1
-- Cost: the queues, and the entries of results of all owners: a few for each.
-- uses: accounts
allowed_when_full()
local owner = arg(1)
for _, list in ipairs({'tasks', 'open', 'files', 'fileends', 'filebytes', 'batches', 'batches-open',
  'ingestions', 'ingesting', 'rate', 'purge'}) do
  call('UNLINK', R .. ':' .. list .. ':' .. owner)
end
local cursor = '0'
repeat                                  -- entries of results that have expired and were not counted out yet
  local scanned = call('HSCAN', HELD, cursor, 'MATCH', '* ' .. owner, 'COUNT', 1000)
  for i = 1, #scanned[2], 2 do drop_results(scanned[2][i]) end
  cursor = scanned[1]
until cursor == '0'
local served = call('HKEYS', R .. ':models')
served[#served + 1] = '@documents'
for _, queue in ipairs(served) do
  use_queue(queue)
  for _, line in ipairs({'online', 'bulk', 'suspects'}) do
    call('HDEL', S, 'pass_' .. line .. ':' .. owner, 'tvt_' .. line .. ':' .. owner)
  end
end
return 1
