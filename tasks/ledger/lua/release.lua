-- Gives back what a claim still holds; the attempt is refunded.   own: token   reply: ring
allowed_when_full()
drop_claim(arg(1), true)
announce()
return ready() > 0 and wake() or 0
