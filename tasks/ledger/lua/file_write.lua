-- Makes or removes the record of a file, and keeps its owner's account.
--   own: "put" id owner filename purpose size created lives_ms stored max_bytes max_files [batch]   (-1: no limit;
--        lives_ms 0: until it is deleted)
--   reply: {"ok", the record} or {"quota", bytes, files} or {"ended"}: the batch that made it writes no more files
--   own: "reserve" id owner bytes max_bytes max_files for_ms   reply: {"ok"} or {"quota", …}: what "put" would say now.
--     An upload on its way counts as so many bytes for so long
--   own: "release" id owner     reply: {"ok"}: it has come to nothing
--   own: "delete" id            reply: {"ok", what the record was, or false}
local SLACK_MS = 60000      -- the account outlives the last file, so that its entries never outlive the account
local verb, id = arg(1), arg(2)
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
local function uploading(account, id)   -- bytes and number of the other uploads; those that nobody renewed have died
  local all, bytes, number = call('HGETALL', account.uploads), 0, 0
  for i = 1, #all, 2 do
    local size, ends = string.match(all[i + 1], '^(%d+) (%d+)$')
    if all[i] ~= id and tonumber(ends) > NOW then bytes, number = bytes + tonumber(size), number + 1 end
  end
  return bytes, number
end
local function refusal(account, id, size, max_bytes, max_files)  -- or nil; and the entries that have expired
  if max_bytes < 0 and max_files < 0 then return nil, expired_files(account) end
  local coming, uploads = uploading(account, id)
  return judged(account, function(bytes, files)
    bytes, files = bytes + coming, files + uploads
    if max_bytes >= 0 and bytes + size > max_bytes or max_files >= 0 and files >= max_files then
      return {'quota', int(bytes), int(files)}
    end
  end)
end

if verb == 'reserve' then
  local account = account_of(arg(3))
  local refused = refusal(account, id, tonumber(arg(4)), tonumber(arg(5)), tonumber(arg(6)))
  if refused then return refused end
  call('HSET', account.uploads, id, int(tonumber(arg(4))) .. ' ' .. int(NOW + tonumber(arg(7))))
  call('PEXPIRE', account.uploads, arg(7))
  return {'ok'}
end
if verb == 'release' then
  allowed_when_full()
  call('HDEL', account_of(arg(3)).uploads, id)
  return {'ok'}
end

local known = call('HGETALL', key)
if verb == 'delete' then
  allowed_when_full()
  if #known == 0 then return {'ok', false} end
  local f = call('HMGET', key, 'owner', 'size')
  local account = account_of(f[1])
  call('UNLINK', key)
  forget_file(account, id .. ' ' .. f[2])
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
local refused, gone = refusal(account, id, size, tonumber(arg(10)), tonumber(arg(11)))
if refused then return refused end
call('HSET', key, 'owner', owner, 'filename', arg(4), 'purpose', arg(5), 'size', int(size), 'created', arg(7),
  'expires', int(expires), 'stored', arg(9))
if expires > 0 then
  call('PEXPIRE', key, int(lives))
  call('ZADD', account.ends, int(expires), id .. ' ' .. int(size))
end
call('ZADD', account.files, arg(7), id)
call('HDEL', account.uploads, id)
call('INCRBY', account.bytes, int(size))
for _, entry in ipairs(gone) do forget_file(account, entry) end
keep(account)
return {'ok', call('HGETALL', key)}
