-- Stores units' outcomes, each only if the token still holds it.
-- own: token forward_passes padded_tokens, then per unit: id unit first items failed tokens extra outcome
-- reply: per unit 1 committed, 2 was already, the same, 0 not yours any more
-- uses: accounts answers ending
local token = arg(1)
allowed_when_full()
local out, refs, tasks = {}, {}, {}
local named = {}  -- units are deleted at the end, so one that is named twice would still have its token
local items_ok, items_failed, stale, repeated, tokens_sum = 0, 0, 0, 0, 0
for i = FIRST + 4, #ARGV, 8 do
  local id, uid, first, items, failed, tokens, extra, outcome =
    ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]),
    ARGV[i + 6], ARGV[i + 7]
  local field = 'v' .. first .. '+' .. int(items)
  local ref = id .. ' ' .. uid
  refs[#refs + 1] = ref
  local same = named[ref]
  local raw = same == nil and call('HGET', units_key(id), 'u' .. uid)
  local u = raw and unit_record(raw)
  if u and u.token == token then
    named[ref] = field .. outcome .. extra
    local t = settle(id, items - failed, failed, u.cost, tokens)
    tasks[id] = t
    local function gather(list, value) list[#list + 1] = value end
    gather(t.units, 'u' .. uid)
    if u.root == uid then gather(t.units, 'p' .. uid) end
    if outcome ~= '' then gather(t.outcomes, field); gather(t.outcomes, outcome) end
    if extra ~= '' then gather(t.outcomes, 'x' .. first); gather(t.outcomes, extra) end
    items_ok, items_failed, tokens_sum = items_ok + items - failed, items_failed + failed, tokens_sum + tokens
    out[#out + 1] = 1
  elseif same ~= nil and same == field .. outcome .. extra then
    repeated = repeated + 1
    out[#out + 1] = 2
  elseif not raw and outcome ~= '' and call('HGET', result_key(id), field) == outcome then
    repeated = repeated + 1
    out[#out + 1] = 2
  elseif not raw and outcome == '' and extra ~= '' and call('HGET', result_key(id), 'x' .. first) == extra then
    repeated = repeated + 1
    out[#out + 1] = 2
  else
    stale = stale + 1
    out[#out + 1] = 0
  end
end
if #refs > 0 then call('SREM', claim_key(token), unpack(refs)) end
if call('EXISTS', claim_key(token)) == 0 then call('ZREM', LEASES, token) end
tally('n_committed_items', items_ok)
tally('n_failed_items', items_failed)
tally('n_stale_units', stale)
tally('n_tokens', tokens_sum)
if repeated == 0 or repeated < #out then  -- a call that was repeated as a whole has been counted
  tally('n_forward_passes', tonumber(arg(2)))
  tally('n_padded_tokens', tonumber(arg(3)))
end
settled()
tell_answers(tasks)
announce()
return out
