-- Stores units' outcomes, each only if the token still holds it.
-- own: token forward_passes padded_tokens, then per unit: id unit first items failed tokens extra vectors
-- reply: per unit 1 committed, 2 was already, the same, 0 not yours any more
local token = arg(1)
allowed_when_full()
local out, refs = {}, {}
local items_ok, items_failed, stale, repeated, tokens_sum = 0, 0, 0, 0, 0
for i = FIRST + 4, #ARGV, 8 do
  local id, uid, first, items, failed, tokens, extra, vectors =
    ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]),
    ARGV[i + 6], ARGV[i + 7]
  local field = 'v' .. first .. '+' .. int(items)
  refs[#refs + 1] = id .. ' ' .. uid
  local raw = call('HGET', units_key(id), 'u' .. uid)
  local u = raw and unit_record(raw)
  if u and u.token == token then
    call('HDEL', units_key(id), 'u' .. uid)
    if u.root == uid then call('HDEL', units_key(id), 'p' .. uid) end
    if vectors ~= '' then call('HSET', result_key(id), field, vectors) end
    if extra ~= '' then call('HSET', result_key(id), 'x' .. first, extra) end
    settle(id, items - failed, failed, u.cost, tokens)
    items_ok, items_failed, tokens_sum = items_ok + items - failed, items_failed + failed, tokens_sum + tokens
    out[#out + 1] = 1
  elseif not raw and vectors ~= '' and call('HGET', result_key(id), field) == vectors then
    repeated = repeated + 1
    out[#out + 1] = 2
  elseif not raw and vectors == '' and extra ~= '' and call('HGET', result_key(id), 'x' .. first) == extra then
    repeated = repeated + 1
    out[#out + 1] = 2
  else
    stale = stale + 1
    out[#out + 1] = 0
  end
end
if #refs > 0 then call('SREM', claim_key(token), unpack(refs)) end
if call('EXISTS', claim_key(token)) == 0 then call('ZREM', LEASES, token) end
settled()
count('committed_items', items_ok)
count('failed_items', items_failed)
count('stale_units', stale)
count('tokens', tokens_sum)
if repeated == 0 or repeated < #out then  -- a call that was repeated as a whole has been counted
  count('forward_passes', tonumber(arg(2)))
  count('padded_tokens', tonumber(arg(3)))
end
announce()
return out
