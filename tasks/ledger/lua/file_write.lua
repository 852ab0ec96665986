-- Makes or removes the record of a file, and keeps its owner's account.
--   own: "put" id owner filename purpose size created lives_ms stored max_bytes max_files [batch]   (-1: no limit;
--        lives_ms 0: until it is deleted)
--   reply: {"ok", the record} or {"quota", bytes, files} or {"ended"}: the batch that made it writes no more files
--   own: "room" owner size max_bytes max_files   reply: {"ok"} or {"quota", …}: what "put" would say now; changes nothing
--   own: "delete" id            reply: {"ok", what the record was, or false}
local SLACK_MS = 60000      -- the account outlives the last file, so that its entries never outlive the account
local AT_ONCE = 1000
local verb, id = arg(1), arg(2)
local key = R .. ':file:' .. id

local function account_of(owner)
  return {files = R .. ':files:' .. owner, ends = R .. ':fileends:' .. owner, bytes = R .. ':filebytes:' .. owner}
end
local function expired(account)         -- entries of files whose records are gone by now, and their bytes
  local gone, bytes = call('ZRANGEBYSCORE', account.ends, '-inf', int(NOW), 'LIMIT', 0, AT_ONCE), 0
  for _, entry in ipairs(gone) do bytes = bytes + tonumber(string.match(entry, ' (%d+)$')) end
  return gone, bytes
end
local function forget(account, entry)   -- "file size"
  local file, size = string.match(entry, '^(%S+) (%d+)$')
  if call('ZREM', account.files, file) == 1 then call('DECRBY', account.bytes, size) end
  call('ZREM', account.ends, entry)
end
local function keep(account)            -- as long as the last of the files
  local number, ending = call('ZCARD', account.files), call('ZCARD', account.ends)
  local last = call('ZREVRANGE', account.ends, 0, 0, 'WITHSCORES')[2]
  for _, name in pairs(account) do
    if number == 0 then call('UNLINK', name)
    elseif ending < number then call('PERSIST', name)
    else call('PEXPIRE', name, int(math.max(last - NOW, 0) + SLACK_MS)) end
  end
end
local function refusal(account, size, max_bytes, max_files)  -- or nil; and the entries that have expired
  local gone, freed = expired(account)
  local bytes = tonumber(call('GET', account.bytes) or 0) - freed
  local files = call('ZCARD', account.files) - #gone
  if max_bytes >= 0 and bytes + size > max_bytes or max_files >= 0 and files >= max_files then
    return {'quota', int(bytes), int(files)}, gone
  end
  return nil, gone
end

if verb == 'room' then
  return (refusal(account_of(arg(2)), tonumber(arg(3)), tonumber(arg(4)), tonumber(arg(5)))) or {'ok'}
end

local known = call('HGETALL', key)
if verb == 'delete' then
  allowed_when_full()
  if #known == 0 then return {'ok', false} end
  local f = call('HMGET', key, 'owner', 'size')
  local account = account_of(f[1])
  call('UNLINK', key)
  forget(account, id .. ' ' .. f[2])
  keep(account)
  return {'ok', known}
end

local batch = arg(12)
if batch then
  local status = call('HGET', R .. ':batch:' .. batch, 'status')
  if status ~= 'finalizing' and status ~= 'cancelling' then return {'ended'} end
end
if #known > 0 then return {'ok', known} end
local owner, size, lives = arg(3), tonumber(arg(6)), tonumber(arg(8))
local expires = lives > 0 and NOW + lives or 0
local account = account_of(owner)
local refused, gone = refusal(account, size, tonumber(arg(10)), tonumber(arg(11)))
if refused then return refused end
call('HSET', key, 'owner', owner, 'filename', arg(4), 'purpose', arg(5), 'size', int(size), 'created', arg(7),
  'expires', int(expires), 'stored', arg(9))
if expires > 0 then
  call('PEXPIRE', key, int(lives))
  call('ZADD', account.ends, int(expires), id .. ' ' .. int(size))
end
call('ZADD', account.files, arg(7), id)
call('INCRBY', account.bytes, int(size))
for _, entry in ipairs(gone) do forget(account, entry) end
keep(account)
return {'ok', call('HGETALL', key)}
