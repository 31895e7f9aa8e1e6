
/tmp/code.bin:     file format binary


Disassembly of section .data:

0000000000000000 <.data>:
       0:	push   rbp
       1:	mov    rbp,rsp
       4:	push   r15
       6:	push   r14
       8:	push   r13
       a:	push   r12
       c:	push   rbx
       d:	and    rsp,0xffffffffffffffc0
      11:	sub    rsp,0x1180
      18:	mov    QWORD PTR [rsp+0x60],r8
      1d:	mov    r15,QWORD PTR [rbp+0x110]
      24:	mov    r8,QWORD PTR [rbp+0x108]
      2b:	mov    rsi,QWORD PTR [rbp+0x100]
      32:	mov    r9d,0x3
      38:	mov    rax,r15
      3b:	or     rax,r8
      3e:	or     rax,rsi
      41:	js     0x86a
      47:	cmp    rdx,rcx
      4a:	jge    0x867
      50:	mov    rax,QWORD PTR [rsp+0x60]
      55:	mov    rsi,QWORD PTR [rbp+0xa0]
      5c:	mov    QWORD PTR [rsp+0x40],rdi
      61:	mov    r12,r8
      64:	mov    r14,QWORD PTR [rbp+0xf0]
      6b:	mov    rbx,QWORD PTR [rbp+0xe8]
      72:	mov    r13,QWORD PTR [rbp+0xb0]
      79:	mov    r9,r15
      7c:	movabs r11,0x7ffffffffffffffc
      86:	mov    r10,r15
      89:	mov    QWORD PTR [rsp+0x58],rcx
      8e:	cmp    rax,0x1
      92:	mov    rdi,rsi
      95:	adc    rax,0x0
      99:	cmp    r8,0x1
      9d:	adc    r12,0x0
      a1:	neg    rdi
      a4:	mov    QWORD PTR [rsp+0xa8],rax
      ac:	lea    rax,[rdx-0x4]
      b0:	cmovs  rdi,rsi
      b4:	xor    rsi,r12
      b7:	cmp    r15,0x1
      bb:	mov    QWORD PTR [rsp+0x50],r12
      c0:	mov    QWORD PTR [rsp+0x98],rsi
      c8:	mov    rsi,r15
      cb:	adc    rsi,0x0
      cf:	mov    QWORD PTR [rsp+0x48],rdi
      d4:	or     rdi,r12
      d7:	mov    r12,QWORD PTR [rbp+0x78]
      db:	imul   r9,r8
      df:	and    r11,r8
      e2:	shl    r10,0x4
      e6:	mov    QWORD PTR [rsp+0x28],rsi
      eb:	mov    esi,r8d
      ee:	and    esi,0x3
      f1:	shr    rdi,0x20
      f5:	mov    QWORD PTR [rsp+0xf8],r10
      fd:	mov    QWORD PTR [rsp+0x100],r11
     105:	mov    QWORD PTR [rsp+0x68],rsi
     10a:	mov    QWORD PTR [rsp+0x90],rdi
     112:	mov    QWORD PTR [rsp+0xd8],r9
     11a:	jmp    0x13a
     11c:	nop    DWORD PTR [rax+0x0]
     120:	mov    rax,QWORD PTR [rsp+0xa0]
     128:	mov    rcx,QWORD PTR [rsp+0x58]
     12d:	lea    rdx,[rax+0x4]
     131:	cmp    rdx,rcx
     134:	jge    0x862
     13a:	mov    rdi,QWORD PTR [rbp+0x40]
     13e:	mov    QWORD PTR [rsp+0x38],rax
     143:	mov    QWORD PTR [rsp+0xa0],rdx
     14b:	call   QWORD PTR [rdi+0x430]
     151:	test   rax,rax
     154:	jne    0x855
     15a:	mov    r8,QWORD PTR [rsp+0x38]
     15f:	mov    rax,QWORD PTR [rsp+0x58]
     164:	lea    rcx,[r8+0x8]
     168:	cmp    rcx,rax
     16b:	cmovge rcx,rax
     16f:	cmp    QWORD PTR [rsp+0x90],0x0
     178:	mov    QWORD PTR [rsp+0xb0],rcx
     180:	je     0x190
     182:	mov    rax,QWORD PTR [rsp+0x48]
     187:	xor    edx,edx
     189:	div    QWORD PTR [rsp+0x50]
     18e:	jmp    0x19b
     190:	mov    rax,QWORD PTR [rsp+0x48]
     195:	xor    edx,edx
     197:	div    DWORD PTR [rsp+0x50]
     19b:	mov    rsi,QWORD PTR [rsp+0x98]
     1a3:	add    r8,0x4
     1a7:	mov    r9,QWORD PTR [rbp+0x108]
     1ae:	mov    r10,QWORD PTR [rbp+0x100]
     1b5:	mov    rdi,QWORD PTR [rsp+0x28]
     1ba:	test   rsi,rsi
     1bd:	sets   cl
     1c0:	test   rdx,rdx
     1c3:	setne  dl
     1c6:	and    dl,cl
     1c8:	movzx  ecx,dl
     1cb:	add    rcx,rax
     1ce:	neg    rcx
     1d1:	test   rsi,rsi
     1d4:	mov    rsi,rcx
     1d7:	cmovns rsi,rax
     1db:	test   r9,r9
     1de:	cmove  rsi,r9
     1e2:	mov    QWORD PTR [rsp+0xc8],rsi
     1ea:	jmp    0x206
     1ec:	nop    DWORD PTR [rax+0x0]
     1f0:	mov    r8,QWORD PTR [rsp+0x38]
     1f5:	inc    r8
     1f8:	cmp    r8,QWORD PTR [rsp+0xb0]
     200:	jge    0x120
     206:	mov    rcx,QWORD PTR [rsp+0xa8]
     20e:	mov    rax,r8
     211:	mov    QWORD PTR [rsp+0x38],r8
     216:	or     rax,rcx
     219:	shr    rax,0x20
     21d:	je     0x230
     21f:	mov    rax,r8
     222:	cqo
     224:	idiv   rcx
     227:	jmp    0x237
     229:	nop    DWORD PTR [rax+0x0]
     230:	mov    eax,r8d
     233:	xor    edx,edx
     235:	div    ecx
     237:	mov    r8,rdx
     23a:	xor    r8,rcx
     23d:	mov    rax,QWORD PTR [rsp+0x60]
     242:	lea    r11,[rsp+0x140]
     24a:	sar    r8,0x3f
     24e:	and    r8,rcx
     251:	test   rdx,rdx
     254:	lea    rcx,[rsp+0x940]
     25c:	cmove  r8,rdx
     260:	add    r8,rdx
     263:	mov    rdx,0xffffffffffffffc0
     26a:	shl    r8,0x8
     26e:	test   rax,rax
     271:	cmove  r8,rax
     275:	mov    rax,r8
     278:	or     rax,0x7f
     27c:	mov    QWORD PTR [rsp+0x78],r8
     281:	mov    QWORD PTR [rsp+0x80],r8
     289:	mov    QWORD PTR [rsp+0xc0],rax
     291:	mov    rax,rsi
     294:	sub    rax,r8
     297:	mov    QWORD PTR [rsp+0xb8],rax
     29f:	xor    eax,eax
     2a1:	jmp    0x2ed
     2a3:	data16 data16 data16 cs nop WORD PTR [rax+rax*1+0x0]
     2b0:	mov    rdx,QWORD PTR [rsp+0xd0]
     2b8:	add    QWORD PTR [rsp+0x80],0x40
     2c1:	mov    rdi,QWORD PTR [rsp+0x28]
     2c6:	mov    rsi,QWORD PTR [rsp+0xc8]
     2ce:	add    rcx,0x200
     2d5:	add    r11,0x200
     2dc:	lea    rax,[rdx+0x40]
     2e0:	cmp    rdx,0xc0
     2e7:	jae    0x1f0
     2ed:	mov    r8,rdx
     2f0:	mov    rdx,rax
     2f3:	mov    rax,QWORD PTR [rsp+0x78]
     2f8:	mov    QWORD PTR [rsp+0xd0],rdx
     300:	add    rax,rdx
     303:	cmp    rax,rsi
     306:	jge    0x380
     308:	mov    rax,QWORD PTR [rsp+0xc0]
     310:	add    rax,r8
     313:	cmp    rax,rsi
     316:	jge    0x380
     318:	xor    esi,esi
     31a:	mov    r13,rdi
     31d:	jmp    0x35f
     31f:	nop
     320:	cqo
     322:	idiv   r13
     325:	mov    rdi,rdx
     328:	xor    rdi,r13
     32b:	mov    r8,rdx
     32e:	sar    r8,0x3f
     332:	sar    rdi,0x3f
     336:	add    r8,rax
     339:	and    rdi,r13
     33c:	add    rdi,rdx
     33f:	test   r15,r15
     342:	cmove  r8,r15
     346:	cmove  rdi,r15
     34a:	mov    QWORD PTR [rcx+rsi*8],rdi
     34e:	mov    QWORD PTR [r11+rsi*8],r8
     352:	inc    rsi
     355:	cmp    rsi,0x40
     359:	je     0x6f0
     35f:	mov    rax,QWORD PTR [rsp+0x80]
     367:	add    rax,rsi
     36a:	mov    rdx,rax
     36d:	or     rdx,r13
     370:	shr    rdx,0x20
     374:	jne    0x320
     376:	xor    edx,edx
     378:	div    r13d
     37b:	jmp    0x325
     37d:	nop    DWORD PTR [rax]
     380:	mov    rax,QWORD PTR [rsp+0xb8]
     388:	lea    rdx,[r8+0x80]
     38f:	cmp    rdx,rax
     392:	cmovge rdx,rax
     396:	add    r8,0x40
     39a:	mov    QWORD PTR [rsp+0xe8],rdx
     3a2:	cmp    rax,r8
     3a5:	jg     0x3e8
     3a7:	jmp    0x2b0
     3ac:	nop    DWORD PTR [rax+0x0]
     3b0:	mov    r8,QWORD PTR [rsp+0xf0]
     3b8:	mov    rax,QWORD PTR [rsp+0x88]
     3c0:	mov    r9,QWORD PTR [rbp+0x108]
     3c7:	mov    QWORD PTR [rsp+r8*8+0x940],rdx
     3cf:	mov    QWORD PTR [rsp+r8*8+0x140],rax
     3d7:	inc    r8
     3da:	cmp    r8,QWORD PTR [rsp+0xe8]
     3e2:	jge    0x2b0
     3e8:	mov    rax,QWORD PTR [rsp+0x78]
     3ed:	mov    QWORD PTR [rsp+0xf0],r8
     3f5:	add    rax,r8
     3f8:	mov    r8,QWORD PTR [rsp+0x28]
     3fd:	mov    rdx,rax
     400:	or     rdx,r8
     403:	shr    rdx,0x20
     407:	je     0x410
     409:	cqo
     40b:	idiv   r8
     40e:	jmp    0x415
     410:	xor    edx,edx
     412:	div    r8d
     415:	lea    rdi,[r15*4+0x0]
     41d:	mov    QWORD PTR [rsp+0x30],rdi
     422:	mov    rdi,rdx
     425:	xor    rdx,r8
     428:	mov    rsi,rdi
     42b:	sar    rsi,0x3f
     42f:	sar    rdx,0x3f
     433:	add    rsi,rax
     436:	and    rdx,r8
     439:	add    rdx,rdi
     43c:	test   r15,r15
     43f:	cmove  rsi,r15
     443:	cmove  rdx,r15
     447:	mov    QWORD PTR [rsp+0x88],rsi
     44f:	test   r9,r9
     452:	je     0x3b0
     458:	mov    r9,QWORD PTR [rsp+0x88]
     460:	mov    rsi,QWORD PTR [rbp+0x108]
     467:	mov    r8,r9
     46a:	mov    rax,r9
     46d:	imul   r8,rsi
     471:	imul   rax,r10
     475:	cmp    rsi,0x4
     479:	jae    0x490
     47b:	xor    r9d,r9d
     47e:	jmp    0x67e
     483:	data16 data16 data16 cs nop WORD PTR [rax+rax*1+0x0]
     490:	mov    r10,QWORD PTR [rsp+0x30]
     495:	lea    rsi,[r8+0x3]
     499:	mov    QWORD PTR [rsp+0xe0],r8
     4a1:	mov    rdi,r10
     4a4:	imul   rdi,rsi
     4a8:	lea    rdi,[rdi+rdx*4]
     4ac:	add    rdi,r12
     4af:	mov    QWORD PTR [rsp+0x138],rdi
     4b7:	lea    rdi,[r15*8+0x0]
     4bf:	imul   rsi,rdi
     4c3:	mov    QWORD PTR [rsp+0x70],rdi
     4c8:	mov    rdi,r10
     4cb:	lea    rsi,[rsi+rdx*8]
     4cf:	add    rsi,r13
     4d2:	mov    QWORD PTR [rsp+0x130],rsi
     4da:	lea    rsi,[r8+0x2]
     4de:	imul   rdi,rsi
     4e2:	imul   rsi,QWORD PTR [rsp+0x70]
     4e8:	lea    rdi,[rdi+rdx*4]
     4ec:	add    rdi,r12
     4ef:	mov    QWORD PTR [rsp+0x128],rdi
     4f7:	lea    rsi,[rsi+rdx*8]
     4fb:	add    rsi,r13
     4fe:	mov    QWORD PTR [rsp+0x120],rsi
     506:	lea    rsi,[r8+0x1]
     50a:	imul   r10,rsi
     50e:	imul   rsi,QWORD PTR [rsp+0x70]
     514:	lea    rdi,[r10+rdx*4]
     518:	add    rdi,r12
     51b:	mov    QWORD PTR [rsp+0x30],rdi
     520:	mov    rdi,QWORD PTR [rsp+0xd8]
     528:	lea    rsi,[rsi+rdx*8]
     52c:	add    rsi,r13
     52f:	mov    QWORD PTR [rsp+0x118],rsi
     537:	imul   rdi,r9
     53b:	xor    r9d,r9d
     53e:	add    rdi,rdx
     541:	lea    rsi,[r12+rdi*4]
     545:	lea    r8,[r13+rdi*8+0x0]
     54a:	xor    edi,edi
     54c:	mov    QWORD PTR [rsp+0x110],rsi
     554:	mov    QWORD PTR [rsp+0x108],r8
     55c:	nop    DWORD PTR [rax+0x0]
     560:	mov    rsi,QWORD PTR [rsp+0x108]
     568:	mov    r8,QWORD PTR [rsp+0x110]
     570:	add    r9,0x4
     574:	mov    rsi,QWORD PTR [rsi+rdi*2]
     578:	add    rsi,rax
     57b:	imul   rsi,r15
     57f:	add    rsi,rdx
     582:	lea    r10,[rbx+rsi*4]
     586:	sar    rsi,0x3f
     58a:	and    rsi,r14
     58d:	vmovss xmm0,DWORD PTR [r10+rsi*4]
     593:	vaddss xmm0,xmm0,DWORD PTR [r8+rdi*1]
     599:	mov    r8,QWORD PTR [rsp+0x30]
     59e:	vmovss DWORD PTR [r10+rsi*4],xmm0
     5a4:	mov    rsi,QWORD PTR [rsp+0x118]
     5ac:	mov    rsi,QWORD PTR [rsi+rdi*2]
     5b0:	add    rsi,rax
     5b3:	imul   rsi,r15
     5b7:	add    rsi,rdx
     5ba:	lea    r10,[rbx+rsi*4]
     5be:	sar    rsi,0x3f
     5c2:	and    rsi,r14
     5c5:	vmovss xmm0,DWORD PTR [r10+rsi*4]
     5cb:	vaddss xmm0,xmm0,DWORD PTR [r8+rdi*1]
     5d1:	mov    r8,QWORD PTR [rsp+0x128]
     5d9:	vmovss DWORD PTR [r10+rsi*4],xmm0
     5df:	mov    rsi,QWORD PTR [rsp+0x120]
     5e7:	mov    rsi,QWORD PTR [rsi+rdi*2]
     5eb:	add    rsi,rax
     5ee:	imul   rsi,r15
     5f2:	add    rsi,rdx
     5f5:	lea    r10,[rbx+rsi*4]
     5f9:	sar    rsi,0x3f
     5fd:	and    rsi,r14
     600:	vmovss xmm0,DWORD PTR [r10+rsi*4]
     606:	vaddss xmm0,xmm0,DWORD PTR [r8+rdi*1]
     60c:	mov    r8,QWORD PTR [rsp+0x138]
     614:	vmovss DWORD PTR [r10+rsi*4],xmm0
     61a:	mov    rsi,QWORD PTR [rsp+0x130]
     622:	mov    rsi,QWORD PTR [rsi+rdi*2]
     626:	add    rsi,rax
     629:	imul   rsi,r15
     62d:	add    rsi,rdx
     630:	lea    r10,[rbx+rsi*4]
     634:	sar    rsi,0x3f
     638:	and    rsi,r14
     63b:	vmovss xmm0,DWORD PTR [r10+rsi*4]
     641:	vaddss xmm0,xmm0,DWORD PTR [r8+rdi*1]
     647:	add    rdi,QWORD PTR [rsp+0xf8]
     64f:	vmovss DWORD PTR [r10+rsi*4],xmm0
     655:	cmp    QWORD PTR [rsp+0x100],r9
     65d:	jne    0x560
     663:	cmp    QWORD PTR [rsp+0x68],0x0
     669:	mov    r10,QWORD PTR [rbp+0x100]
     670:	mov    r8,QWORD PTR [rsp+0xe0]
     678:	je     0x3b0
     67e:	add    r9,r8
     681:	mov    rsi,QWORD PTR [rsp+0x68]
     686:	imul   r9,r15
     68a:	add    r9,rdx
     68d:	shl    r9,0x2
     691:	data16 data16 data16 data16 data16 cs nop WORD PTR [rax+rax*1+0x0]
     6a0:	mov    rdi,QWORD PTR [r13+r9*2+0x0]
     6a5:	add    rdi,rax
     6a8:	imul   rdi,r15
     6ac:	add    rdi,rdx
     6af:	lea    r8,[rbx+rdi*4]
     6b3:	sar    rdi,0x3f
     6b7:	and    rdi,r14
     6ba:	vmovss xmm0,DWORD PTR [r8+rdi*4]
     6c0:	vaddss xmm0,xmm0,DWORD PTR [r12+r9*1]
     6c6:	vmovss DWORD PTR [r8+rdi*4],xmm0
     6cc:	lea    r8,[r15*4+0x0]
     6d4:	add    r9,r8
     6d7:	dec    rsi
     6da:	jne    0x6a0
     6dc:	jmp    0x3b0
     6e1:	data16 data16 data16 data16 data16 cs nop WORD PTR [rax+rax*1+0x0]
     6f0:	mov    r13,QWORD PTR [rbp+0xb0]
     6f7:	test   r9,r9
     6fa:	je     0x2b0
     700:	xor    eax,eax
     702:	data16 data16 data16 data16 cs nop WORD PTR [rax+rax*1+0x0]
     710:	mov    edx,0x3
     715:	data16 cs nop WORD PTR [rax+rax*1+0x0]
     720:	mov    rdi,QWORD PTR [r11+rdx*8-0x18]
     725:	mov    rsi,QWORD PTR [rcx+rdx*8-0x18]
     72a:	mov    r8,rdi
     72d:	imul   r8,r9
     731:	imul   rdi,r10
     735:	add    r8,rax
     738:	imul   r8,r15
     73c:	add    r8,rsi
     73f:	add    rdi,QWORD PTR [r13+r8*8+0x0]
     744:	imul   rdi,r15
     748:	add    rdi,rsi
     74b:	lea    rsi,[rbx+rdi*4]
     74f:	sar    rdi,0x3f
     753:	and    rdi,r14
     756:	vmovss xmm0,DWORD PTR [rsi+rdi*4]
     75b:	vaddss xmm0,xmm0,DWORD PTR [r12+r8*4]
     761:	vmovss DWORD PTR [rsi+rdi*4],xmm0
     766:	mov    rdi,QWORD PTR [r11+rdx*8-0x10]
     76b:	mov    rsi,QWORD PTR [rcx+rdx*8-0x10]
     770:	mov    r8,rdi
     773:	imul   r8,r9
     777:	imul   rdi,r10
     77b:	add    r8,rax
     77e:	imul   r8,r15
     782:	add    r8,rsi
     785:	add    rdi,QWORD PTR [r13+r8*8+0x0]
     78a:	imul   rdi,r15
     78e:	add    rdi,rsi
     791:	lea    rsi,[rbx+rdi*4]
     795:	sar    rdi,0x3f
     799:	and    rdi,r14
     79c:	vmovss xmm0,DWORD PTR [rsi+rdi*4]
     7a1:	vaddss xmm0,xmm0,DWORD PTR [r12+r8*4]
     7a7:	vmovss DWORD PTR [rsi+rdi*4],xmm0
     7ac:	mov    rdi,QWORD PTR [r11+rdx*8-0x8]
     7b1:	mov    rsi,QWORD PTR [rcx+rdx*8-0x8]
     7b6:	mov    r8,rdi
     7b9:	imul   r8,r9
     7bd:	imul   rdi,r10
     7c1:	add    r8,rax
     7c4:	imul   r8,r15
     7c8:	add    r8,rsi
     7cb:	add    rdi,QWORD PTR [r13+r8*8+0x0]
     7d0:	imul   rdi,r15
     7d4:	add    rdi,rsi
     7d7:	lea    rsi,[rbx+rdi*4]
     7db:	sar    rdi,0x3f
     7df:	and    rdi,r14
     7e2:	vmovss xmm0,DWORD PTR [rsi+rdi*4]
     7e7:	vaddss xmm0,xmm0,DWORD PTR [r12+r8*4]
     7ed:	vmovss DWORD PTR [rsi+rdi*4],xmm0
     7f2:	mov    rdi,QWORD PTR [r11+rdx*8]
     7f6:	mov    rsi,QWORD PTR [rcx+rdx*8]
     7fa:	add    rdx,0x4
     7fe:	mov    r8,rdi
     801:	imul   r8,r9
     805:	imul   rdi,r10
     809:	add    r8,rax
     80c:	imul   r8,r15
     810:	add    r8,rsi
     813:	add    rdi,QWORD PTR [r13+r8*8+0x0]
     818:	imul   rdi,r15
     81c:	add    rdi,rsi
     81f:	lea    rsi,[rbx+rdi*4]
     823:	sar    rdi,0x3f
     827:	and    rdi,r14
     82a:	vmovss xmm0,DWORD PTR [rsi+rdi*4]
     82f:	vaddss xmm0,xmm0,DWORD PTR [r12+r8*4]
     835:	vmovss DWORD PTR [rsi+rdi*4],xmm0
     83a:	cmp    rdx,0x43
     83e:	jne    0x720
     844:	inc    rax
     847:	cmp    rax,r9
     84a:	jne    0x710
     850:	jmp    0x2b0
     855:	mov    rdi,QWORD PTR [rsp+0x40]
     85a:	mov    r9d,0x9
     860:	jmp    0x86a
     862:	mov    rdi,QWORD PTR [rsp+0x40]
     867:	xor    r9d,r9d
     86a:	mov    QWORD PTR [rdi],r9
     86d:	xor    eax,eax
     86f:	lea    rsp,[rbp-0x28]
     873:	pop    rbx
     874:	pop    r12
     876:	pop    r13
     878:	pop    r14
     87a:	pop    r15
     87c:	pop    rbp
     87d:	ret
     87e:	xchg   ax,ax
     880:	sub    rsp,0x118
     887:	vmovups xmm0,XMMWORD PTR [rdi+0xf8]
     88f:	vmovups xmm1,XMMWORD PTR [rdi+0x110]
     897:	mov    rdx,QWORD PTR [rdi]
     89a:	mov    rcx,QWORD PTR [rdi+0x8]
     89e:	mov    r8,QWORD PTR [rdi+0x10]
     8a2:	mov    rax,QWORD PTR [rdi+0x50]
     8a6:	mov    rsi,QWORD PTR [rdi+0x88]
     8ad:	mov    r9,QWORD PTR [rdi+0xb0]
     8b4:	mov    r10,QWORD PTR [rdi+0xc0]
     8bb:	mov    rdi,QWORD PTR [rdi+0x120]
     8c2:	mov    QWORD PTR [rsp+0x100],rdi
     8ca:	lea    rdi,[rsp+0x110]
     8d2:	vmovups XMMWORD PTR [rsp+0xf0],xmm1
     8db:	vmovups XMMWORD PTR [rsp+0xd8],xmm0
     8e4:	mov    QWORD PTR [rsp+0x30],rax
     8e9:	movabs rax,0x7f7bbd833000
     8f3:	mov    QWORD PTR [rsp+0xa0],r10
     8fb:	mov    QWORD PTR [rsp+0x90],r9
     903:	mov    QWORD PTR [rsp+0x68],rsi
     908:	call   rax
     90a:	mov    rax,QWORD PTR [rsp+0x110]
     912:	add    rsp,0x118
     919:	ret
     91a:	nop    WORD PTR [rax+rax*1+0x0]
     920:	push   rax
     921:	movabs rax,0x7f7bbe06d220
     92b:	call   rax
     92d:	movabs rax,0x7f7bbdf054d0
     937:	call   rax
     939:	movabs rsi,0x7f7bbd832000
     943:	movabs rcx,0x7f7bbe06d200
     94d:	mov    rdi,rax
     950:	call   rcx
     952:	xor    eax,eax
     954:	pop    rcx
     955:	ret
     956:	cs nop WORD PTR [rax+rax*1+0x0]
     960:	ret
	...
     ffd:	add    BYTE PTR [rax],al
     fff:	add    BYTE PTR [rax+rbp*2+0x65],dh
    1003:	and    BYTE PTR [rcx+rbp*2+0x73],ch
    1007:	je     0x1072
    1009:	outs   dx,BYTE PTR ds:[rsi]
    100a:	and    BYTE PTR [edi+0x66],ch
    100e:	and    BYTE PTR [rcx+0x20],ah
    1011:	imul   esp,DWORD PTR [rbp+0x72],0x6e
    1015:	gs ins BYTE PTR es:[rdi],dx
    1017:	and    BYTE PTR [rbx+0x61],ah
    101a:	outs   dx,BYTE PTR ds:[rsi]
    101b:	outs   dx,BYTE PTR ds:[rsi]
    101c:	outs   dx,DWORD PTR ds:[rsi]
    101d:	je     0x103f
    101f:	(bad)
    1021:	and    BYTE PTR [rbx+0x61],ah
    1024:	ins    BYTE PTR es:[rdi],dx
    1025:	ins    BYTE PTR es:[rdi],dx
    1026:	gs cmp ah,BYTE PTR fs:[rax]
    102a:	ins    BYTE PTR es:[rdi],dx
    102b:	(bad)
    102c:	jne    0x109c
    102e:	movsxd ebp,DWORD PTR [rax+0x20]
    1031:	je     0x109b
    1033:	and    BYTE PTR gs:[rbx+0x65],ch
    1037:	jb     0x10a7
    1039:	gs ins BYTE PTR es:[rdi],dx
    103b:	sub    al,0x20
    103d:	imul   esp,DWORD PTR [rbp+0x72],0x6e
    1041:	gs ins BYTE PTR es:[rdi],dx
    1043:	pop    rbx
    1044:	addr32 jb 0x10b0
    1047:	fs sub al,0x20
    104a:	(bad)
    104b:	ins    BYTE PTR es:[rdi],dx
    104c:	outs   dx,DWORD PTR ds:[rsi]
    104d:	movsxd ebp,DWORD PTR [rbx+0x5d]
    1050:	sub    BYTE PTR [rsi],ch
    1052:	cs cs sub DWORD PTR [rax],eax
    1056:	add    BYTE PTR [rax],al
    1058:	adc    al,0x0
    105a:	add    BYTE PTR [rax],al
    105c:	add    BYTE PTR [rax],al
    105e:	add    BYTE PTR [rax],al
    1060:	add    DWORD PTR [rdx+0x52],edi
    1063:	add    BYTE PTR [rcx],al
    1065:	js     0x1077
    1067:	add    DWORD PTR [rsp+rcx*1],ebx
    106a:	(bad)
    106b:	or     BYTE PTR [rax+0x34000001],dl
    1071:	add    BYTE PTR [rax],al
    1073:	add    BYTE PTR [rax+rax*1],bl
    1076:	add    BYTE PTR [rax],al
    1078:	mov    BYTE PTR [rdi],cl
    107a:	add    BYTE PTR [rax],al
    107c:	add    BYTE PTR [rax],al
    107e:	add    BYTE PTR [rax],al
    1080:	jle    0x108a
    1082:	add    BYTE PTR [rax],al
    1084:	add    BYTE PTR [rax],al
    1086:	add    BYTE PTR [rax],al
    1088:	add    BYTE PTR [rcx+0xe],al
    108b:	adc    BYTE PTR [rsi+0x60d4302],al
    1091:	push   rsp
    1092:	add    DWORD PTR [rdi],0xffffff8c
    1095:	(bad)
    1096:	lea    eax,[rip+0x38f048e]        # 0x38f152a
    109c:	add    esp,DWORD PTR [rbp+0x8]
    109f:	or     al,0x7
    10a1:	or     BYTE PTR [rax],al
    10a3:	add    BYTE PTR [rax],al
    10a5:	add    BYTE PTR [rax],al
    10a7:	add    BYTE PTR [rax+rax*1],ah
    10aa:	add    BYTE PTR [rax],al
    10ac:	push   rsp
    10ad:	add    BYTE PTR [rax],al
    10af:	add    al,dl
    10b1:	(bad)
    10b2:	add    BYTE PTR [rax],al
    10b4:	add    BYTE PTR [rax],al
    10b6:	add    BYTE PTR [rax],al
    10b8:	(bad)
	...
    10c1:	rex.RXB (bad)
    10c3:	movabs al,ds:0x80e920202
    10cc:	add    BYTE PTR [rax],al
    10ce:	add    BYTE PTR [rax],al
    10d0:	sbb    al,0x0
    10d2:	add    BYTE PTR [rax],al
    10d4:	jl     0x10d6
    10d6:	add    BYTE PTR [rax],al
    10d8:	rex.W sbb BYTE PTR [rax],al
    10db:	add    BYTE PTR [rax],al
    10dd:	add    BYTE PTR [rax],al
    10df:	add    BYTE PTR [rsi],dh
	...
    10e9:	rex.B (bad)
    10eb:	adc    BYTE PTR [rsi+rcx*1+0x8],dh
    10ef:	add    BYTE PTR [rax+rax*1],bl
    10f2:	add    BYTE PTR [rax],al
    10f4:	pushf
    10f5:	add    BYTE PTR [rax],al
    10f7:	add    BYTE PTR [rax+0x18],ch
    10fa:	add    BYTE PTR [rax],al
    10fc:	add    BYTE PTR [rax],al
    10fe:	add    BYTE PTR [rax],al
    1100:	add    DWORD PTR [rax],eax
	...
