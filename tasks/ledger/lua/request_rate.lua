-- One request of a key that may make so many in a second (GCRA).   own: owner, per second
-- reply: {ms until it may make one, 0: it has made one; requests left; ms until all are left}
-- uses: owner_account
allowed_when_full()
local a, most = numbers(R .. ':owner:' .. ARGV[OWN]), math.max(1, tonumber(ARGV[OWN + 1]))
local window, each = 1000 * most / ARGV[OWN + 1], 1000 / ARGV[OWN + 1]
local full = math.min(math.max(a.requests, NOW), NOW + window)
local wait = full + each - NOW - window
if wait <= .5 then wait, full = 0, full + each end
a.requests = full
save_sums()
return {math.ceil(wait), math.floor((NOW + window - full) / each + 1e-6), math.ceil(full - NOW)}
