-- Owners that were purged.   own: since (of the clock of Redis)   reply: {now, owner...}
local out = {int(NOW)}
for _, owner in ipairs(call('ZRANGEBYSCORE', R .. ':purged', arg(1), '+inf')) do out[#out + 1] = owner end
return out
