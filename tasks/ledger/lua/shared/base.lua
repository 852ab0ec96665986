-- Part of every script. ARGV: root, clock, queue, then the script's own from ARGV[OWN] on.
-- clock: milliseconds to add to the server's, or in tests "@" and the time itself.
--
-- Traps. Redis refuses a script's writes at maxmemory only until its first write. So SUBMIT and RECORD_CREATE start with a
-- write that can be refused, and what finishes or frees starts with one that cannot. Nothing is rolled back after an error:
-- validate first. ".." prints 14 digits of a number; arguments of call() are exact. unpack() fails above some 8,000 values.
local call, R, QUEUE, OWN = redis.call, ARGV[1], ARGV[3], 4
local NOW
do
  local time = call('TIME')
  NOW = tonumber(string.match(ARGV[2], '^@(%d+)$')) or time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[2])
end
local Q = R .. ':q:' .. QUEUE .. ':'
local CLAIMS, LEASES, LINGER, DUE = Q .. 'claims', Q .. 'leases', Q .. 'lingering', R .. ':due'
local OPEN = {queued = true, in_progress = true}
local function allowed_when_full() call('ZREM', DUE, '') end
