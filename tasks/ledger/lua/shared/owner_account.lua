-- Sums: what a queue and an owner have. Each is one packed table, read with one command, changed as a table, and written by
-- save_sums with one command (as a hash of 14 numbers it took eight times as long). Nothing else writes them. What is not
-- there is 0. What has come to 0 goes, and the last of it takes the key with it.
-- Trap: packing gives the same fields in another order each time, so texts do not tell whether something has changed.
local sums, ZERO = {}, {__index = function() return 0 end}
local function numbers(key)
  local h = sums[key]
  if not h then
    local text = call('GET', key)
    h = {is = setmetatable(text and cmsgpack.unpack(text) or {}, ZERO)}
    h.seen = setmetatable({}, {__index = h.is, __newindex = function(_, field, n)
      if h.is[field] ~= n then h.is[field], h.changed = n, true end
    end})
    sums[key] = h
  end
  return h.seen
end

-- Of a queue: cost_{lane}, open_{lane} (tasks), owners_{lane} (who have some), v_{lane} (virtual time), credit (of bulk work),
-- bytes (payloads), reserved (for vectors), used and limit (memory, as housekeeping saw it), rate, bell, rings, serves, looked,
-- absent (since when no worker lives), lone:{worker} (the claim beside which it runs nothing).
local function queue(name) return numbers(R .. ':q:' .. name .. ':state') end

-- An owner's one account: bytes in Redis, jobs, tokens and requests (buckets), and what his records count: revoked, purged,
-- stored, files. Three names more: of the cost of his tasks in this lane, of their number, and of his debt in this queue.
--   revoked: new requests are refused, accepted work goes on.
--   purged: open tasks end when they are met, and what is committed for them is stale.
local function account(owner, in_queue, lane)
  local place = ':' .. in_queue .. ':' .. lane
  return numbers(R .. ':owner:' .. owner), 'cost' .. place, 'open' .. place, 'debt:' .. in_queue
end
-- An account of buckets and debt alone goes by itself: when they are full, the debt after a minute without anything else.
local DEBT_MS = 60000
local FULL_AT = {tokens = true, requests = true}  -- the moment of each
local function save_sums()
  for key, h in pairs(sums) do
    if h.changed then
      local stays, life = false, 0
      for field, n in pairs(h.is) do
        local left = string.find(field, '^debt:') and DEBT_MS or FULL_AT[field] and n - NOW
        if n == 0 or left and left <= 0 then h.is[field] = nil
        elseif left then life = math.max(life, left)
        else stays = true end
      end
      if stays then call('SET', key, cmsgpack.pack(h.is))
      elseif life > 0 then call('SET', key, cmsgpack.pack(h.is), 'PX', math.ceil(life))
      else call('UNLINK', key) end
      h.changed = false
    end
  end
end
