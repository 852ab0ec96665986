-- All models.   own: names to include although no worker registered them
-- reply: {memory percent, {name, entry or '', state, leases, worker...}...}
-- uses: accounts
local entries = call('HGETALL', R .. ':models')
local models = {}
for i = 1, #entries, 2 do models[entries[i]] = entries[i + 1] end
for i = FIRST + 1, #ARGV do models[ARGV[i]] = models[ARGV[i]] or '' end
local used, limit = memory()
local out = {used and math.floor(100 * used / limit) or 0}
for name, entry in pairs(models) do
  local q = R .. ':q:' .. name
  local row = {name, entry, call('HGETALL', q .. ':state'), call('ZCARD', q .. ':leases')}
  for _, worker in ipairs(call('ZRANGEBYSCORE', q .. ':workers', '(' .. int(NOW), '+inf')) do
    local worker_entry = call('GET', q .. ':worker:' .. worker)
    if worker_entry then row[#row + 1] = worker_entry end
  end
  out[#out + 1] = row
end
return out
