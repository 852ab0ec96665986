-- Makes or removes the record of a file, and keeps its owner's account. verb:
--   put: reply {'ok', the record} or {'quota', bytes} or {'ended'}: the batch that made it writes no more files.
--     for_ms: of the file, 0: until it is deleted. batch: '' or the one that made it
--   room: reply {'ok'} or {'quota', ...} as `put` would now; changes nothing
--   delete: reply {'ok', what the record was, or false}
-- Arguments that a verb does not need are empty. max_bytes: -1: no limit.
-- uses: litter quota
local verb, id, owner, size, for_ms, max_bytes, filename, purpose, created, stored, batch = named(11)
size, for_ms, max_bytes = tonumber(size), tonumber(for_ms), tonumber(max_bytes)
local SLACK_MS = 60000      -- the account outlives the last file, so that its entries never outlive the account
local key = R .. ':file:' .. id

local function keep(account)            -- as long as the last of the files
  local number, ending = call('ZCARD', account.files), call('ZCARD', account.ends)
  local last = call('ZREVRANGE', account.ends, 0, 0, 'WITHSCORES')[2]
  for _, name in ipairs({account.files, account.ends, account.bytes}) do
    if number == 0 then call('UNLINK', name)
    elseif ending < number then call('PERSIST', name)
    else call('PEXPIRE', name, int(math.max(last - NOW, 0) + SLACK_MS)) end
  end
end

if verb == 'room' then
  local refused = over_quota(owner, max_bytes, size)
  return refused or {'ok'}
end

local record = call('HGETALL', key)
if verb == 'delete' then
  allowed_when_full()
  if #record == 0 then return {'ok', false} end
  local f = call('HMGET', key, 'owner', 'size', 'stored')
  local account = account_of(f[1])
  call('UNLINK', key)
  no_litter(f[3] .. ' ' .. f[1])          -- its bytes were deleted before
  forget_file(account, id .. ' ' .. f[2])
  keep(account)
  return {'ok', record}
end

if batch ~= '' then
  local status = call('HGET', R .. ':batch:' .. batch, 'status')
  if status ~= 'finalizing' and status ~= 'cancelling' then return {'ended'} end
end
if #record > 0 then return {'ok', record} end
-- Said as of `created`, as clients were promised. Redis keeps it for so long from now on, by its own clock.
local expires = for_ms > 0 and tonumber(created) + for_ms or 0
local account = account_of(owner)
local refused, gone = over_quota(owner, max_bytes, size)
if refused then return refused end
call('HSET', key, 'owner', owner, 'filename', filename, 'purpose', purpose, 'size', int(size), 'created', created,
  'expires', int(expires), 'stored', stored)
if expires > 0 then
  call('PEXPIRE', key, int(for_ms))
  litter(stored .. ' ' .. owner, NOW + for_ms)
  call('ZADD', account.ends, int(NOW + for_ms), id .. ' ' .. int(size))
end
call('ZADD', account.files, created, id)
call('INCRBY', account.bytes, int(size))
for _, entry in ipairs(gone) do forget_file(account, entry) end
keep(account)
return {'ok', call('HGETALL', key)}
