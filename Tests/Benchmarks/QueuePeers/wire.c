/* Load for queue servers: threads that each send so many commands at once and wait for all answers.

   usage: wire redis|beanstalkd append|cycle PORT THREADS BATCH SECONDS
   Prints the operations a second. A cycle is an append, a delivery and an acknowledgement; a batch of each goes out at once. */

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BODY = 200, ID = 64 };

static int port, batch, cycles, is_redis;
static double seconds, end;
static char body[BODY + 1];

typedef struct {
    int number, socket;
    long done;
    /* What is to be sent, and what has been read and not looked at. */
    char *out, *in;
    size_t out_size, out_room, in_size, in_place, in_room;
    char (*ids)[ID];
    int id_count;
} Client;

static void fail(const char *what) {
    fprintf(stderr, "wire: %s\n", what);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void append(Client *client, const char *bytes, size_t size) {
    if (client->out_size + size > client->out_room) {
        client->out_room = (client->out_size + size) * 2;
        client->out = realloc(client->out, client->out_room);
        if (!client->out) fail("no memory");
    }
    memcpy(client->out + client->out_size, bytes, size);
    client->out_size += size;
}

static void text(Client *client, const char *words) { append(client, words, strlen(words)); }

static void flush(Client *client) {
    size_t sent = 0;
    while (sent < client->out_size) {
        ssize_t count = write(client->socket, client->out + sent, client->out_size - sent);
        if (count <= 0) fail("cannot write");
        sent += (size_t)count;
    }
    client->out_size = 0;
}

static void need(Client *client, size_t size) {
    while (client->in_size - client->in_place < size) {
        if (client->in_place > 0) {
            memmove(client->in, client->in + client->in_place, client->in_size - client->in_place);
            client->in_size -= client->in_place;
            client->in_place = 0;
        }
        if (client->in_room < size + 65536) {
            client->in_room = size + 65536;
            client->in = realloc(client->in, client->in_room);
            if (!client->in) fail("no memory");
        }
        ssize_t count = read(client->socket, client->in + client->in_size, client->in_room - client->in_size);
        if (count <= 0) fail("the server has closed");
        client->in_size += (size_t)count;
    }
}

/* A line without its end, good until the next reading. */
static char *line(Client *client) {
    size_t size = 0;
    for (;;) {
        need(client, size + 1);
        if (client->in[client->in_place + size] == '\n') break;
        size++;
    }
    char *start = client->in + client->in_place;
    start[size > 0 && start[size - 1] == '\r' ? size - 1 : size] = 0;
    client->in_place += size + 1;
    return start;
}

static void skip(Client *client, size_t size) {
    need(client, size);
    client->in_place += size;
}

/* Redis, https://redis.io/docs/latest/develop/reference/protocol-spec/ */

static void words(Client *client, int count, const char *const *list) {
    char head[32];
    snprintf(head, sizeof head, "*%d\r\n", count);
    text(client, head);
    for (int i = 0; i < count; i++) {
        snprintf(head, sizeof head, "$%zu\r\n", strlen(list[i]));
        text(client, head);
        text(client, list[i]);
        text(client, "\r\n");
    }
}

/* Reads one answer; ids of entries, which look like 123-0, are kept. */
static void answer(Client *client) {
    char *head = line(client);
    if (head[0] == '-') fail(head);
    if (head[0] == '*') {
        long count = atol(head + 1);
        for (long i = 0; i < count; i++) answer(client);
    } else if (head[0] == '$') {
        long size = atol(head + 1);
        if (size < 0) return;
        need(client, (size_t)size + 2);
        const char *value = client->in + client->in_place;
        if (size > 2 && size < ID && memchr(value, '-', (size_t)size) && client->id_count < batch) {
            memcpy(client->ids[client->id_count], value, (size_t)size);
            client->ids[client->id_count++][size] = 0;
        }
        skip(client, (size_t)size + 2);
    }
}

static long redis(Client *client) {
    const char *add[] = {"XADD", "q", "*", "f", body};
    for (int i = 0; i < batch; i++) words(client, 5, add);
    flush(client);
    for (int i = 0; i < batch; i++) answer(client);
    client->id_count = 0;
    if (!cycles) return batch;
    char name[32], count[32];
    snprintf(name, sizeof name, "c%d", client->number);
    snprintf(count, sizeof count, "%d", batch);
    const char *take[] = {"XREADGROUP", "GROUP", "g", name, "COUNT", count, "STREAMS", "q", ">"};
    words(client, 9, take);
    flush(client);
    answer(client);
    int taken = client->id_count;
    if (!taken) return 0;
    const char **list = malloc(sizeof *list * (size_t)(taken + 3));
    if (!list) fail("no memory");
    list[0] = "XACK", list[1] = "q", list[2] = "g";
    for (int i = 0; i < taken; i++) list[i + 3] = client->ids[i];
    words(client, taken + 3, list);
    list[0] = "XDEL", list[1] = "q";
    for (int i = 0; i < taken; i++) list[i + 2] = client->ids[i];
    words(client, taken + 2, list);
    free(list);
    flush(client);
    answer(client);
    answer(client);
    client->id_count = 0;
    return taken;
}

/* beanstalkd, https://github.com/beanstalkd/beanstalkd/blob/master/doc/protocol.txt */

static long beanstalkd(Client *client) {
    char head[96];
    for (int i = 0; i < batch; i++) {
        snprintf(head, sizeof head, "put 0 0 600 %d\r\n", BODY);
        text(client, head);
        append(client, body, BODY);
        text(client, "\r\n");
    }
    flush(client);
    for (int i = 0; i < batch; i++)
        if (strncmp(line(client), "INSERTED", 8)) fail("a put was refused");
    if (!cycles) return batch;
    for (int i = 0; i < batch; i++) text(client, "reserve\r\n");
    flush(client);
    for (int i = 0; i < batch; i++) {
        unsigned long id, size;
        if (sscanf(line(client), "RESERVED %lu %lu", &id, &size) != 2) fail("a reserve was refused");
        snprintf(client->ids[i], ID, "%lu", id);
        skip(client, size + 2);
    }
    for (int i = 0; i < batch; i++) {
        snprintf(head, sizeof head, "delete %s\r\n", client->ids[i]);
        text(client, head);
    }
    flush(client);
    for (int i = 0; i < batch; i++)
        if (strcmp(line(client), "DELETED")) fail("a delete was refused");
    return batch;
}

static void dial(Client *client) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1;
    client->socket = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(client->socket, (struct sockaddr *)&address, sizeof address)) fail("cannot connect");
    setsockopt(client->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    client->ids = malloc((size_t)batch * ID);
    if (!client->ids) fail("no memory");
}

static void *run(void *argument) {
    Client *client = argument;
    while (now() < end) client->done += is_redis ? redis(client) : beanstalkd(client);
    return NULL;
}

int main(int count, char **list) {
    if (count != 7) fail("usage: wire redis|beanstalkd append|cycle PORT THREADS BATCH SECONDS");
    is_redis = !strcmp(list[1], "redis");
    cycles = !strcmp(list[2], "cycle");
    port = atoi(list[3]);
    int threads = atoi(list[4]);
    batch = atoi(list[5]);
    seconds = atof(list[6]);
    if (threads < 1 || batch < 1) fail("so few do nothing");
    memset(body, 'x', BODY);
    Client *clients = calloc((size_t)threads, sizeof *clients);
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    if (!clients || !ids) fail("no memory");
    for (int i = 0; i < threads; i++) {
        clients[i].number = i;
        dial(&clients[i]);
    }
    if (is_redis) {
        const char *group[] = {"XGROUP", "CREATE", "q", "g", "0", "MKSTREAM"};
        words(&clients[0], 6, group);
        flush(&clients[0]);
        answer(&clients[0]);
    }
    double begin = now();
    end = begin + seconds;
    for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, run, &clients[i]);
    long sum = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sum += clients[i].done;
    }
    printf("%f\n", sum / (now() - begin));
    return 0;
}
