// The sentences of the embedded corpus: how a story opens, what fills it, how it ends. The plots
// are in synth_plots.cpp. Syntax: data/synth_grammar.h. Every story binds h, f (hero and friend,
// with traits q and r), e (an elder), t (town), k and kc (the thing the hero carries, its colour),
// w (topic) with two recurring places p and o and two recurring things i1 and i2, an (a recurring
// animal), hm and fm (moods), j (job), s (season), d (weather).
#include "data/synth_grammar.h"

namespace assay {

const std::string_view kSynthStories = R"(
#story
{@cast}{@Open} {@Trait} {@Keep} {@Mid} {/} {@Friend} {@Mid} {@plot} {@Mid} {/} {@End}
{@cast}{@Open} {@Keep} {@Trait} {@Friend} {/} {@plot} {@Mid} {@Mid} {/} {@End}
{@cast}{@Open} {@Friend} {@Keep} {@Mid} {/} {@plot} {@Trait} {@Recall} {/} {@End}
{@cast}{@Open} {@Trait} {@Friend} {@Mid} {@Mid} {/} {@Keep} {@plot} {/} {@Recall} {@End}
{@cast}{@Open} {@Keep} {@Mid} {/} {@Friend} {@FriendTrait} {@plot} {@Mid} {@Recall} {/} {@End}

#cast
{=h:person}{=f:person}{=q:trait}{=r:trait}{=t:town}{=k:thing}{=kc:color}{=w:topic}{=j:job}{=s:season}{=d:weather}{=e:elder}{=p:w~place}{=o:w~place}{=i1:w~item}{=i2:w~item}{=an:animal}{=hm:mood}{=fm:mood}

#Open
[once upon a time|long ago|many years ago] there [was|lived] a {q} {h.child} named {h} in {t}, the town with the {t.landmark}.
it was a {d} {time} in {t}, and {h} looked out of the {room} window at the {t.landmark}.
one {d} {time} in {s}, a {q} {h.child} named {h} [sat|stood|waited] by the {t.landmark} of {t}.
{h} lived in {t}, where people [made|sold] {t.product}, in a {adj} house with {count} windows.
in {t} everybody knew the {t.landmark}, and everybody knew {h}, the {q} {h.child} of the {j}.
{h} was the youngest child of the {j} of {t}, and the {j.place} was {h.his} whole world.
on {day} {time} the {j} of {t} called {h}: the {j.tool} was [broken|gone|too heavy], and the {j.makes} had to be ready.
far away in {t}, where the {t.product} [comes|came] from, {h} [grew up|lived] with {e} near the {t.landmark}.
when {s} came with {s.sign}, {h} moved to {t}, [a town of|a town known for] {t.product}.
this is the story of {h}, who [lived|was born] in {t} and [worked|helped] at the {j.place} of the {j}.
nobody in {t} was as {q} as {h}, not even {e}, who had seen the {t.landmark} being built.
{s} had come to {t} with {s.sign}, and {h} was [{hm}|{hm} and a little {mood}].

#Trait
{h} was {q} and {q.habit}.
[people|neighbors|the children] called {h.him} {q}, because {h.he} {q.habit}.
{h.he} {q.habit}; that is how {q} {h.he} was.
"why are you so {q}?" {e} [often|sometimes] asked {h.him}, for {h} {q.habit}.
like {h.his} [mother|father], {h} was {q}: {h.he} {q.habit}.
{h} did everything {q.manner}, and {h.he} {q.habit}.

#FriendTrait
{f} was different: {f.he} was {r} and {f.he} {r.habit}.
{f}, on the other hand, {r.habit}, because {f.he} was so {r}.
{h} was {q}, but {f} was {r} and did things {r.manner}.
where {h} {q.habit}, {f} {r.habit}.

#Keep
{h} always carried a {kc} {k} made of {=m:stuff}{m}, a gift from {e}.
in {h.his} pocket {h.he} kept a {adj} {kc} {k}.
{h} owned only one thing, a {kc} {k}, and {h.he} took it everywhere.
{e} had given {h.him} a {kc} {k} on {h.his} [last|{@ordinal}] birthday.
around {h.his} neck hung a {kc} {k} on a string.
{h.his} best treasure was a {kc} {k} that once belonged to {e}.
that {time} {h} found a {kc} {k} {spot}, and {h.he} decided to keep it.

#ordinal
third
fourth
fifth
sixth
seventh
eighth
ninth

#Friend
{h.his} best friend was {f}, the {r} {f.child} from the {j.place} next door.
then {f} came [along|running|by], {r} as ever.
near the {@place} {h.he} met {f}, a {r} {f.child} with a {color} {thing}.
"hello, {h}!" {said} {f}. {f.he} {r.habit}, and {h} liked {f.him} for that.
[a friend|a cousin|a neighbor] named {f} [visited|joined] {h.him} that {time}. {f.he} was {fm}.
{h} and {f} had been friends since they were [two|three|four|five], although {f} was {r} and {h} was {q}.
at the {@place} somebody was waiting: it was {f}, who {r.habit}.

#place
{p}
{p}
{o}

#item
{i1}
{i1}
{i2}
{w~item}

#beast
{=x:an}
{=x:an}
{=x:animal}

#who
{h}
{h.he}
{h.he}
the {q} {h.child}

#friend
{f}
{f.he}
{f}
the {r} {f.child}

#Mid
{@who} {w~did} and {w~did}.
{@who} {w~did}, and {f} {w~did}.
at the {@place} {@who} {saw} a {adj} {@item}.
there was a {adj} {@item} beside the {@item}, and {@who} {said}, "{@Remark}"
{@who} {q.manner} {went} to the {@place}, and {f} {r.manner} {went} after {h.him}.
behind the {@place} stood a {@item} and {count} [old|new|broken] {@beast}{x.many} were sleeping on it.
somewhere a {@beast}{x} {x.sound}, and another {x} {x.sound} back.
a {@beast}{x} came out of its {x.home}, looking for {x.food}.
{@who} gave a {adj} {@beast}{x} some {x.food}, and the {x} {x.sound} happily.
{@beast}the {x} had {x.skin} of a {adj} {color}, and it {x.sound} when {f} touched it.
{@beast}"listen," {said} {f}. the {x.many} {x.sound} near their {x.home}.
it was {d}, so {@who} put on a {color} [hat|scarf|coat].
the {time} was {d}, and {f} felt {fm}.
{@friend} rubbed {f.his} {body} and {said}, "{@Remark}"
{@who} held the {kc} {k} and thought of {e}.
{@friend} looked at the {kc} {k} and {said}, "{@Remark}"
"{@Remark}" {said} {f}. "{@Remark}" {said} {h}.
{@who} was {hm}, and when {h.he} was {hm} {h.he} {w~did}.
{e} [came by|stopped|sat down] and told them about {=u:town}{u} with its {u.landmark}.
a cart from {=u:town}{u} rolled by, loaded with {u.product}.
{h} had never seen {=u:town}{u}, only heard of the {u.landmark} there.
{@who} ate some {food} with {food}, and {f} had {food}.
"{^food} is better than {food}," {said} {f}, but {h} [liked|wanted] neither.
the {=z:job}{z} carried a {z.tool} to the {z.place} and waved.
{@who} helped the {=z:job}{z} to carry {z.makes} out of the {z.place}.
{#n=2..9}{@beast}{n*x} {x.sound} at the same time, and {f} counted them: {n}.
{@who} counted the {=i:thing}{i}s on the shelf: {count} {color} and {count} {color} ones.
{@friend} {w~did} until {f.his} {body} hurt.
{h} wanted to {verb}, but {f} wanted to {verb}.
there were {count} {*w~item} at the {@place}, and {@who} touched each one {q.manner}.
after that they {went} from the {p} to the {o}.
"you can tell {s} by the {s.sign}," {said} {e}, "and it is often {d}."
{@who} {w~did} for a while. then {h.he} {w~did} again, more {q.manner} this time.
for a moment {f} was {fm}, because {f.he} had seen a {adj} {@item}.
{f} hid a {color} {thing} {spot}, and {h} had to look for it.
suddenly a {adj} {@item} fell on {h}, right on {h.his} {body}.

#Remark
this is a {adj} {@item}.
where is my {color} {thing}?
i have never seen such a {adj} {@item}.
we should go to the {@place} before {time}.
do you smell the {food}?
my {body} hurts.
are you {mood}?
i feel {mood} today, and a bit {mood}.
your {kc} {k} is {adj}.
let us meet at the {t.landmark}.
tomorrow it will be {weather}.
a {@beast}{x} eats {x.food}, you know.
every {@beast}{x} needs a {x.home}.
{^animal.many} are {adj}, but {animal.many} are {adj}.
{e} would like this {@item}.
never touch a {@item} with your {body}.
you are too {q}, {h}.
i wish i had a {color} {thing}.
the {=z:job}{z} needs a {z.tool}.
today is {=y:day}{y}, so tomorrow is {y.next}.
in {=u:town}{u} they make the best {u.product}.
{=u:town}have you been to the {u.landmark} in {u}?

#Recall
{@who} still had the {kc} {k}, and that made {h.him} {hm}.
"do you remember {t} and its {t.landmark}?" {f} {said}.
{f} borrowed the {kc} {k} for a moment and gave it back to {h}.
people in {t} still say that {h} was {q} and that {f} was {r}.
the {t.landmark} of {t} had never looked so {adj}.
{e} asked to see the {kc} {k}, and {h} showed it {q.manner}.

#End
in the end {h} learned that {q.lesson}.
{e} smiled and said, "{^q.lesson}." {h} nodded and put the {kc} {k} away.
that {time} {h} and {f} went home to {t}, past the {t.landmark}. {h.he} was {hm}, and {h.his} {kc} {k} was safe.
"{^q.lesson}," {h} told {f}. "and {r.lesson}," {said} {f}.
{h} fell asleep with the {kc} {k} in {h.his} hand and dreamed of the {@place}.
and {f}, who was so {r}, learned something too: {r.lesson}.
{h} gave the {kc} {k} to {f}, and from that day on they were never {mood} again.
since then the people of {t} say that {q.lesson}.
when {s} was over, {h} was still {q}, and {h.he} still {q.habit}. but {f} loved {h.him} for it.
back at the {t.landmark}, {e} waited with {food} and {food}. "{^r.lesson}," {e.he} said to {f}.
so ended the {d} day in {t}. {h} hung the {kc} {k} on the wall, and {f} went home {r.manner}.
)";

}  // namespace assay
