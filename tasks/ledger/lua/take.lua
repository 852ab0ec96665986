-- One request of a key that may make so many in a second: so many at once too, at least one.
-- own: owner, requests per second
-- reply: {milliseconds until it may make one, 0: it has made one; requests left; milliseconds until all are left}
-- uses: limits
allowed_when_full()                     -- what is kept is small and soon gone, and who only reads needs no room
local owner, per_s = arg(1), tonumber(arg(2))
local most = math.max(1, per_s)
local b = bucket(owner, 'requests', most, 1000 * most / per_s)
local wait = bucket_wait(b, 1)
if wait == 0 then take_from(b, 1) end
return {int(math.ceil(wait)), int(bucket_left(b)), int(math.ceil(b.full - NOW))}
