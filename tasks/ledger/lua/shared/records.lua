-- Records: files, keys, whatever an owner keeps. R:{kind}:{id} is a hash: s: JSON; change: random name of the last change;
-- whatever else its kind needs (`page:7`, ...). Scripts look at these fields of the JSON: owner; expires (ms, or 0: never);
-- listed, open (true or false); counts (name -> number): what it stands for in its owner's account, such as {"jobs": 1},
-- {"stored": bytes, "files": 1}, and {"revoked": 1} or {"purged": 1} of a key. Its own bytes are in the account too.
-- uses: owner_account
local RECORD_BYTES = 512
local function record_key(kind, id) return R .. ':' .. kind .. ':' .. id end
local function owner_of(r) return numbers(R .. ':owner:' .. r.owner) end
local function tally_record(r, bytes, n)
  local a = owner_of(r)
  a.bytes = a.bytes + n * bytes
  for name, number in pairs(r.counts) do a[name] = a[name] + n * number end
end
-- Where a record is entered: its owner's list, the set of those that need steps, the time of its end, who watches its kind.
local function enter_record(kind, id, r, there)
  local index, open, entry = R .. ':index:' .. kind .. ':' .. r.owner, R .. ':open:' .. kind, kind .. ':' .. id
  if there and r.listed then call('ZADD', index, 0, id) else call('ZREM', index, id) end
  if there and r.open then call('SADD', open, id) else call('SREM', open, id) end
  if there and r.expires > 0 then call('ZADD', DUE, r.expires, entry) else call('ZREM', DUE, entry) end
  call('HINCRBY', R .. ':changes', kind, 1)
  call('PUBLISH', R .. ':changed', '|' .. id)
  if r.open then call('PUBLISH', R .. ':steps', 'step') end
end
local function remove_record(kind, id)  -- false: it is not there
  local key = record_key(kind, id)
  local f = call('HMGET', key, 's', 'bytes', 'alias')
  if not f[1] then return false end
  local r = cjson.decode(f[1])
  tally_record(r, f[2], -1)
  enter_record(kind, id, r, false)
  if f[3] then
    local alias = R .. ':alias:' .. r.owner .. ':' .. f[3]
    if string.match(call('GET', alias) or '', '^%S+') == id then call('UNLINK', alias) end
  end
  call('UNLINK', key)
  return true
end
