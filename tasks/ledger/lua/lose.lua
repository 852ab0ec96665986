-- Gives back what a claim still holds as suspects: the work failed in a way that names no item.
-- own: token   reply: bell due
-- uses: leases turns wakeup
allowed_when_full()
drop_claim(arg(1), false)
announce()
return ready() > 0 and wake() or 0
