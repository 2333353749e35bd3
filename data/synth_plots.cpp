// The plots of the embedded corpus. Each states something early that determines words many
// sentences later: lists that are read back, counts that must add up, messages repeated word for
// word, the order of a race, what is in which box. Syntax: data/synth_grammar.h; variables:
// synth_stories.cpp.
#include "data/synth_grammar.h"

namespace assay {

const std::string_view kSynthPlots = R"(
#plot
{@lost}
{@list}
{@counting}
{@message}
{@boxes}
{@race}
{@song}
{@quiz}
{@journey}
{@gift}
{@trade}
{@recipe}
{@promise}
{@riddle}
{@pet}
{@seeds}
{@letter}
{@week}
{@shares}
{@names}

#lost
{=a:thing}{=ac:color}{=a1:spot}{=a2:spot}{=a3:spot}but the {ac} {a} of {@owner} was gone. {h} looked {a1}, but it was not there. {@Mid} {f} looked {a2}, but there was only a {adj} {@item}. {@Mid} at last {@who} looked {a3}, and there was the {ac} {a}! "{@thanks}" {said} {e}. "i had looked {a1} and {a2}, but not {a3}."
{=a:thing}{=ac:color}{=x:animal}one day {h} lost a {ac} {a}. "have you seen my {a}?" {h.he} asked {f}. "is it {color}?" asked {f}. "no, it is {ac}," said {h}. {@Mid} then a {x} {x.sound}. it had the {ac} {a} in its {x.home}! {h} gave the {x} some {x.food} and got the {a} back.

#owner
{e}
{e}
{f}

#thanks
Thank you, my {q} friend!
How {mood} i am!
You found it!

#list
{=a:food}{=b:food}{=c:food}{=g:food}{e} sent {h} to the market. "bring me {a}, {b}, {c} and {g}," {e.he} said. {h} said it again and again: "{^a}, {b}, {c} and {g}." {@Mid} at the stall {h.he} bought {a}, {b} and {c}. "you forgot the {g}!" {said} {f}, so {h} {went} back for the {g}. {@Mid} {e} looked into the basket and found {a}, {b}, {c} and {g}.
{=a:thing}{=b:thing}{=c:thing}{=ac:color}{=bc:color}{=cc:color}{h} packed a {ac} {a}, a {bc} {b} and a {cc} {c} for the trip. {@Mid} on the way {f} opened the bag. out came the {ac} {a}, then the {bc} {b}, and at the bottom lay the {cc} {c}. {@Mid} at night {h} packed it all again: the {a}, the {b} and the {c}.

#counting
{=x:animal}{#n=4..12}{#k=1..3}{+m=n-k}{n*x} lived behind the house of {h}. one {time} {k} of them ran away, so only {m*x} {?m:was:were} left. "where {?k:is:are} the other {k}?" asked {f}. {@Mid} they looked near the {x.home}, because {x.many} like a {x.home}. there {?k:it was:they were}, eating {x.food}. {?k:it:they} {x.sound}. now there were {n*x} again.
{=i:thing}{#n=3..9}{#k=1..8}{+m=n+k}{h} had {n} {*i}, and {f} had {k}. together they had {m}. {@Mid} "{^n} and {k}," {said} {e}, "that makes {m}." {@Mid} so they put all {m} {*i} in a row, from the {adj} one to the {adj} one.
{=i:food}{#n=6..12}{#k=2..4}{+m=n-k}{#l=1..2}{+o=m-l}{h} carried {n} bags of {i} to {e}. {k} bags fell into the mud, and {m} were left. {@Mid} then {l} more {?l:was:were} eaten by a {=x:animal}{x}, so {h.he} had {o}. "you started with {n}," {said} {e}, "and you bring me {o}?"

#message
{=u:town}{=v:elder}{=a:thing}{=b:spot}{=ac:color}"go to {u}," {e} said to {h}, "and tell {v} this: the {ac} {a} is {b}." So {h} {went} to {u}, the town with the {u.landmark}, and all the way {h.he} said: "the {ac} {a} is {b}." {@Mid} {v} opened the door. "the {ac} {a} is {b}," said {h}. {v} was {mood} and gave {h.him} some {u.product}.
{=v:elder}{=y:day}{=b:time}{=c:food}{e} had a message for {v}: "come on {y} {b} and bring {c}." {h} and {f} took it. {@Mid} "what was it?" asked {f}. "come on {y} {b} and bring {c}," said {h}. {@Mid} and so {v} came on {y} {b} and brought {c}.

#boxes
{=a:color}{=b:color}{=c:color}{=x:thing}{=y:thing}{=z:thing}there were three boxes on the table. the {a} box held a {x}, the {b} box held a {y}, and the {c} box held a {z}. {@Mid} {@boxask} {@Mid} "and where is the {z}?" asked {e}. "in the {c} box," {said} {h} {q.manner}.

#boxask
"where is the {x}?" asked {e}. "in the {a} box," said {f}.
"where is the {y}?" asked {e}. "in the {b} box," said {f}.
"what is in the {a} box?" asked {e}. "a {x}," said {f}.
"what is in the {b} box?" asked {e}. "a {y}," said {f}.
{f} opened the {b} box, took out the {y} and put in a {color} [stone|leaf|feather].

#race
{=a:person}{=b:person}{=c:person}{h}, {a}, {b} and {c} ran a race from the {t.landmark} to the {p}. {a} was faster than {b}, and {b} was faster than {c}, but {h} was the slowest of all. so {a} came first, {b} came second, {c} came third, and {h} came last. {@Mid} "who won?" asked {f}. "{^a} won," said {h}, "and {b} was second." {@Mid} {a} got a {color} ribbon, {b} got a {color} ribbon and {c} got nothing.
{=a:animal}{=b:animal}{=c:animal}one day the {a}, the {b} and the {c} had a race. the {b} {b.sound} at the start. the {c} fell, so the {c} came last. the {a} stopped to eat {a.food}, so the {b} came first. {@Mid} the {b} got a prize, the {a} got some {a.food}, and the {c} went back to its {c.home}.

#song
{=a:word}{=b:verb}{=c:word}{=g:verb}{h} knew an old song. "oh {a}, {b} over the {c}, {g}, {g}, little {a}," {h.he} sang. {@Mid} {f} learned it and sang: "oh {a}, {b} over the {c}, {g}, {g}, little {a}." {@Mid} {@who} was {mood}, and {@again} "oh {a}, {b} over the {c}, {g}, {g}, little {a}."
{=a:word}{=b:word}{=c:verb}{=g:verb}{e} taught the children a verse. "the {a} will {c}, the {b} will {g}, and i will {c} with you." {@Mid} soon all of {t} sang it. "the {a} will {c}, the {b} will {g}, and i will {c} with you." {@Mid} even the {animal} seemed to know it: "the {a} will {c}, the {b} will {g}, and i will {c} with you."

#again
they sang it once more:
in the {time} everybody sang:
{e} joined in:

#quiz
{=x:animal}{=y:animal}{=z:animal}{e} asked the children questions. "where does the {x} live?" "in a {x.home}," said {f}. "what does the {y} eat?" "{^y.food}," said {h}. {@Mid} "and who {z.sound} last night?" "a {z}," said {f}, "because only {z.many} do that."
{=u:town}{=v:town}"where is the {u.landmark}?" asked {e}. "in {u}," said {f}. "and what do they make in {v}?" "{^v.product}," said {h}. {@Mid} {e} was {mood}. "one more: which town has a {v.landmark}?" "{^v}!" both {said}.
{=x:animal}{=y:animal}{=z:animal}"a {x} eats {y.food}," said {f}. "no," {said} {e}, "a {y} eats {y.food}, a {x} eats {x.food}." {@Mid} "does the {z} live in a {x.home}?" asked {h}. "no, the {x} does. the {z} lives in a {z.home}."
{=y:day}{=i:job}{=o:job}"which day comes after {y}?" asked {e}. "{^y.next}," said {h}. "who works with a {i.tool}?" "the {i}, in the {i.place}." {@Mid} "and who makes {o.makes}?" "the {o}," said {f}.

#journey
{=u:town}{=v:town}{=x:town}{h} and {f} travelled from {t} to {u}, from {u} to {v} and from {v} to {x}. in {u} they saw the {u.landmark}. in {v} they bought {v.product}. in {x} they slept near the {x.landmark}. {@Mid} then they went back the same way, from {x} to {v}, from {v} to {u} and from {u} home to {t}. {@Mid}
{=u:town}{=v:elder}"how do i get to {u}?" asked {h}. "go past the {t.landmark}, over the {p}, until you see the {u.landmark}," {said} {v}. so {h} went past the {t.landmark} and over the {p}. {@Mid} when {h.he} saw the {u.landmark}, {h.he} knew that this was {u}. everybody there was selling {u.product}.

#gift
{=a:thing}{=ac:color}{=m:stuff}{f} wished for a {ac} {a} made of {m}. {h} asked the {j}, but there was no {m} in the {j.place}. {@Mid} so {h} {went} to {=u:town}{u} and found some {m} at the {u.landmark}. all {time} {h.he} worked, and painted the {a} {ac}. {@Mid} "a {ac} {a}!" {said} {f}. "and it is made of {m}!"

#trade
{=a:thing}{=b:thing}{=c:thing}{=v:person}{=x:person}{h} had a {a}, and {v} had a {b}. {h} gave the {a} to {v} and got the {b}. {@Mid} then {h} met {x}, who had a {c}. {h} gave the {b} to {x} and got the {c}. {@Mid} so {v} had the {a}, {x} had the {b}, and {h} had the {c}. "i began with a {a}," said {h}, "and now i have a {c}."

#recipe
{=a:food}{=b:food}{=c:food}{=x:dish}{e} showed {h} how to make a {x}. "first take the {a}, then the {b}, and last the {c}." {h} took the {a}. {@Mid} then {h.he} took the {b}. {@Mid} and last {h.he} took the {c}. the {x} was {adj}. "{^a}, {b}, {c}," said {h}, "that is all you need for a {x}."

#promise
{=a:room}{=i:animal}"never open the door of the {a}," said {e}. {h} promised never to open the door of the {a}. {@Mid} but {h} was {q}, and one {time} {h.he} opened the door of the {a}. a {i} jumped out and {i.sound}! it ran straight to its {i.home}. {@Mid} "i am sorry," said {h}. "i opened the door of the {a}, and the {i} is gone." {e} gave {h.him} some {i.food} for the {i}, and together they waited at the {i.home}.
{=a:thing}{=y:day}{f} lent {h} a {=ac:color}{ac} {a}. "bring it back on {y}," said {f}. {h} promised to bring back the {a} on {y}. {@Mid} {y} came, and {h} had forgotten the {a}. {@Mid} on {y.next} {h.he} brought the {ac} {a} to {f}. "you are late," said {f}, "i said {y}, and it is {y.next}."

#riddle
{=x:animal}{=y:animal}"it lives in a {x.home}, it eats {x.food}, and its {x.skin} is {adj}," said {e}. "what is it?" "a {y}," said {f}. "no, a {y} lives in a {y.home}," said {h}. {@Mid} then {h.he} knew it. "it is a {x}!"
{=i:job}{=o:job}"i have a {i.tool} and i make {i.makes}," said {e}. "who am i?" "a {o}!" cried {f}. "no, a {o} has a {o.tool}." {@Mid} {h} thought of the {i.place}. "you are a {i}," {h.he} said.

#pet
{=x:animal}{=a:petname}{=ac:color}{h} found a {adj} {ac} {x} and called it {a}. every {time} {a} {x.sound} and wanted {x.food}. {@Mid} one day {a} was not in the {x.home}. "{^a}! {^a}!" called {f}. {@Mid} something {x.sound} {spot}: it was {a}, the {ac} {x}. {h} gave {a} all the {x.food} {h.he} had.

#seeds
{#n=5..12}{=a:color}{=y:day}{#k=1..4}{+m=n-k}on {y} {h} planted {n} seeds. {k} of them were eaten by a {=x:animal}{x}, so {m} flowers grew. they were {a}. {@Mid} {f} asked, "how many seeds did you plant?" "{^n}," said {h}, "but i have only {m} {a} flowers." {@Mid} {h} gave the {m} {a} flowers to {e}.

#letter
{=v:person}{=u:town}{=a:thing}{h} wrote a letter to {v} in {u}. "dear {v}, i am in {t} with {f}. it is {d} here. i still have my {kc} {k}. how is the {u.landmark}? yours, {h}." {@Mid} after {count} days an answer came from {u}. "dear {h}, i am glad that you have your {kc} {k}. the {u.landmark} is {adj}. greet {f} and {t}. yours, {v}." {@Mid}

#week
{=a:day}{=x:food}{=y:food}on {a} {h} {w~did} and ate {x}. on {a.next} {h.he} {w~did} and ate {y}. {@Mid} "what did you eat on {a}?" asked {e}. "{^x}," said {h}. "and on {a.next}?" "{^y}." {@Mid} "{^x} and then {y}," {said} {e}, "no wonder that you are {mood}."

#shares
{#n=2..6}{+m=n+n}{=i:food}{=v:person}{h} and {f} had {m} pieces of {i}. "half for you and half for me," said {h}, so each got {n}. {@Mid} then {v} came. {h} gave {v} one piece, and {f} gave {v} one piece, so {v} had two. {@Mid} {+k=n-1}"now i have {k}," said {h}, "and {f} has {k} too."

#names
{=a:animal}{=b:animal}{=x:petname}{=y:petname}{e} had two animals, a {a} called {x} and a {b} called {y}. {x} lived in a {a.home} and {y} lived in a {b.home}. {@Mid} one {time} {y} {b.sound} loudly. "{^x} is hungry!" said {f}. "no," {said} {h}, "that was {y}, because {x} is a {a}." So {f} gave {b.food} to {y}. {@Mid} and {x} got {a.food}.
)";

}  // namespace assay
