# Code that dx never writes, and room for the code that a test writes.
.class public LCode;
.super Ljava/lang/Object;

.field static number:I
.field static wide:J
.field static object:Ljava/lang/Object;

.method static room(IJ)I
    .registers 8
    invoke-static {p0, p1, p2}, LCode;->room(IJ)I
    move-result v0
    invoke-static {}, LCode;->nothing()V
    sget v1, LCode;->number:I
    sget-wide v2, LCode;->wide:J
    sget-object v4, LCode;->object:Ljava/lang/Object;
    const-class v4, [I
    const-class v4, [J
    const-class v4, I
    new-instance v4, Ljava/lang/Object;
    invoke-direct {v4}, Ljava/lang/Object;-><init>()V
    nop
    nop
    :start
    nop
    nop
    nop
    nop
    :end
    nop
    nop
    nop
    nop
    .catch Ljava/lang/Exception; {:start .. :end} :handler
    return v0
    :handler
    nop
    const/4 v0, 0
    return v0
.end method

.method static nothing()V
    .registers 0
    return-void
.end method

.method static formats(Ljava/lang/invoke/MethodHandle;I)Ljava/lang/Object;
    .registers 300
    move-object/16 v1, p0
    move/16 v298, p1
    not-int v0, v0
    const-string/jumbo v0, "jumbo"
    goto/32 :next
    :next
    const-wide/high16 v2, 0x4000000000000000L
    invoke-polymorphic {v1, v0}, Ljava/lang/invoke/MethodHandle;->invoke([Ljava/lang/Object;)Ljava/lang/Object;, (Ljava/lang/String;)Ljava/lang/Object;
    move-result-object v0
    const-method-handle v4, invoke-static@LCode;->nothing()V
    const-method-type v5, (I)V
    return-object v0
.end method
