-- All models.   own: names to include although no worker registered them
-- reply: {memory percent, {name, entry or '', state, leases, worker...}...}
local entries = call('HGETALL', R .. ':models')
local known = {}
for i = 1, #entries, 2 do known[entries[i]] = entries[i + 1] end
for i = FIRST + 1, #ARGV do known[ARGV[i]] = known[ARGV[i]] or '' end
local used, limit = string.match(call('GET', MEMORY) or '', '^(%d+) (%d+)$')
local out = {used and tonumber(limit) > 0 and math.floor(100 * used / limit) or 0}
for name, entry in pairs(known) do
  local q = R .. ':q:' .. name
  local row = {name, entry, call('HGETALL', q .. ':state'), call('ZCARD', q .. ':leases')}
  for _, worker in ipairs(call('ZRANGEBYSCORE', q .. ':workers', '(' .. int(NOW), '+inf')) do
    local said = call('GET', q .. ':worker:' .. worker)
    if said then row[#row + 1] = said end
  end
  out[#out + 1] = row
end
return out
