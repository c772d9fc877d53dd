/* A stand-in for libnvidia-ml.so.1 with scripted devices, for tests on machines without a GPU.
 *
 * EVALRAY_STUB_NVML names a file that is read at nvmlInit; one "key = value" a line, "[device]" begins a device.
 *   uuid, name            text
 *   memory_mib            total; used is a quarter of it
 *   limit_watts           enforced power limit
 *   power                 "seconds:watts ..." ascending, each value held until the next; seconds from `start`
 *   base_mj               the counter at the start
 *   period                seconds between two updates of the counter (0: continuous)
 *   freeze_at, freeze_until   the counter stands still in between, and goes on from there without the lost part
 *   reset_at              the counter begins at 0 again (driver reload)
 *   jump_at, jump_mj      the counter leaps
 *   lost_at, back_at      every query answers GPU_IS_LOST in between
 *   lost_file, freeze_file   the same two as long as the file is there
 *   work                  path; what the files PATH-0, PATH-1, ... say is drawn besides `power` (see power_log.py):
 *                         doubles, first how many entries, then each entry: CLOCK_MONOTONIC seconds, millijoules
 *                         until then, watts from then on
 *   utilization           per cent
 *   mig                   1: MIG mode is on
 *   no_counter, no_instant, no_power, module_power   1: that quantity is not supported / answers for the module only
 *   arch                  NVML_DEVICE_ARCH_*
 *   error_FUNCTION        the code that this NVML function answers, e.g. error_nvmlDeviceGetTemperature = 4
 * EVALRAY_STUB_NVML_CLOCK names a file of 8 bytes, a double: the time in seconds, mapped into memory.  Without it
 * the time is CLOCK_MONOTONIC.  `start` (before the first device) is the time at which the scripts begin.
 */
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, LOST = 15 };
enum { MAX_DEVICES = 16, MAX_STEPS = 20000, MAX_ERRORS = 16, MAX_WORK = 8, WORK_BYTES = 8 + 24 * 65536 };

typedef struct {
    char uuid[96], name[96], lost_file[512], freeze_file[512], work[512];
    double memory_mib, limit, base_mj, period, freeze_at, freeze_until, reset_at, jump_at, jump_mj, lost_at, back_at;
    int utilization, mig, no_counter, no_instant, no_power, module_power, arch;
    int steps;
    double *at, *watts;
    uint64_t last; /* of the counter */
    const volatile double *log[MAX_WORK];
    int errors;
    char error_function[MAX_ERRORS][64];
    int error_code[MAX_ERRORS];
} Device;

static Device devices[MAX_DEVICES];
static int count, ready; /* ready: how often it was initialised */
static double start;
static volatile double *virtual_clock;

static double now(void) {
    if (virtual_clock) return *virtual_clock - start;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9 - start;
}

static char *trim(char *s) {
    while (*s == ' ' || *s == '\t') s++;
    char *e = s + strlen(s);
    while (e > s && (e[-1] == ' ' || e[-1] == '\n' || e[-1] == '\r' || e[-1] == '\t')) *--e = 0;
    return s;
}

static void set_power(Device *d, char *text) {
    for (char *token = strtok(text, " "); token && d->steps < MAX_STEPS; token = strtok(NULL, " ")) {
        char *colon = strchr(token, ':');
        if (!colon) continue;
        d->at[d->steps] = atof(token);
        d->watts[d->steps++] = atof(colon + 1);
    }
}

static void set(Device *d, const char *key, char *value) {
    double number = atof(value);
    struct { const char *name; double *field; } doubles[] = {
        {"memory_mib", &d->memory_mib}, {"limit_watts", &d->limit}, {"base_mj", &d->base_mj}, {"period", &d->period},
        {"freeze_at", &d->freeze_at}, {"freeze_until", &d->freeze_until}, {"reset_at", &d->reset_at},
        {"jump_at", &d->jump_at}, {"jump_mj", &d->jump_mj}, {"lost_at", &d->lost_at}, {"back_at", &d->back_at}};
    struct { const char *name; int *field; } ints[] = {
        {"utilization", &d->utilization}, {"mig", &d->mig}, {"no_counter", &d->no_counter}, {"no_instant", &d->no_instant},
        {"no_power", &d->no_power}, {"module_power", &d->module_power}, {"arch", &d->arch}};
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        if (!strcmp(key, doubles[i].name)) { *doubles[i].field = number; return; }
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        if (!strcmp(key, ints[i].name)) { *ints[i].field = (int)number; return; }
    if (!strcmp(key, "uuid")) snprintf(d->uuid, sizeof d->uuid, "%s", value);
    else if (!strcmp(key, "name")) snprintf(d->name, sizeof d->name, "%s", value);
    else if (!strcmp(key, "power")) set_power(d, value);
    else if (!strcmp(key, "lost_file")) snprintf(d->lost_file, sizeof d->lost_file, "%s", value);
    else if (!strcmp(key, "freeze_file")) snprintf(d->freeze_file, sizeof d->freeze_file, "%s", value);
    else if (!strcmp(key, "work")) snprintf(d->work, sizeof d->work, "%s", value);
    else if (!strncmp(key, "error_", 6) && d->errors < MAX_ERRORS) {
        snprintf(d->error_function[d->errors], 64, "%s", key + 6);
        d->error_code[d->errors++] = (int)number;
    }
}

static Device *add_device(void) {
    Device *d = &devices[count++];
    free(d->at);
    free(d->watts);
    memset(d, 0, sizeof *d);
    d->at = malloc(MAX_STEPS * sizeof(double));
    d->watts = malloc(MAX_STEPS * sizeof(double));
    snprintf(d->uuid, sizeof d->uuid, "GPU-%08d-0000-0000-0000-000000000000", count - 1);
    snprintf(d->name, sizeof d->name, "NVIDIA H100 80GB HBM3");
    d->memory_mib = 81559;
    d->limit = 700;
    d->arch = 9;
    d->freeze_at = d->freeze_until = d->reset_at = d->jump_at = d->lost_at = d->back_at = INFINITY;
    return d;
}

static int load(void) {
    const char *path = getenv("EVALRAY_STUB_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return DRIVER_NOT_LOADED;
    Device *d = NULL;
    char *line = NULL;
    size_t room = 0;
    count = 0;
    start = 0;
    while (getline(&line, &room, file) > 0) {
        char *text = trim(line), *equals;
        if (!strcmp(text, "[device]") && count < MAX_DEVICES) { d = add_device(); continue; }
        if (!(equals = strchr(text, '='))) continue;
        *equals = 0;
        char *key = trim(text), *value = trim(equals + 1);
        if (d) set(d, key, value);
        else if (!strcmp(key, "start")) start = atof(value);
    }
    free(line);
    fclose(file);
    const char *clock = getenv("EVALRAY_STUB_NVML_CLOCK");
    virtual_clock = NULL;
    if (clock && *clock) {
        int fd = open(clock, O_RDONLY);
        if (fd < 0) return DRIVER_NOT_LOADED;
        void *page = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        if (page == MAP_FAILED) return DRIVER_NOT_LOADED;
        virtual_clock = page;
    }
    return OK;
}

static int there(const char *path) { return *path && access(path, F_OK) == 0; }

/* The entry of a log that holds at t, or NULL. */
static const volatile double *entry(const volatile double *log, double t) {
    for (int i = (int)log[0] - 1; i >= 0; i--)
        if (log[1 + 3 * i] <= t + start) return log + 1 + 3 * i;
    return NULL;
}

static void find_work(Device *d) {
    for (int i = 0; *d->work && i < MAX_WORK; i++) {
        char path[544];
        if (d->log[i]) continue;
        snprintf(path, sizeof path, "%s-%d", d->work, i);
        int fd = open(path, O_RDONLY);
        if (fd < 0) return;
        void *page = mmap(NULL, WORK_BYTES, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        if (page == MAP_FAILED) return;
        d->log[i] = page;
    }
}

/* Millijoules from 0 to t. */
static double drawn(const Device *d, double t) {
    double total = 0;
    for (int i = 0; i < MAX_WORK && d->log[i]; i++) {
        const volatile double *e = entry(d->log[i], t);
        if (e) total += e[1] + e[2] * (t + start - e[0]) * 1000;
    }
    for (int i = 0; i < d->steps && d->at[i] < t; i++) {
        double end = i + 1 < d->steps && d->at[i + 1] < t ? d->at[i + 1] : t;
        double begin = d->at[i] < 0 ? 0 : d->at[i];
        if (end > begin) total += d->watts[i] * (end - begin) * 1000;
    }
    return total;
}

static double power_now(const Device *d) {
    double t = now(), watts = 0;
    for (int i = 0; i < MAX_WORK && d->log[i]; i++) {
        const volatile double *e = entry(d->log[i], t);
        if (e) watts += e[2];
    }
    for (int i = 0; i < d->steps && d->at[i] <= t; i++) watts = d->watts[i];
    return watts;
}

static uint64_t counter(Device *d) {
    if (d->last && there(d->freeze_file)) return d->last;
    double t = now();
    if (t < 0) t = 0;
    if (d->period > 0) t = floor(t / d->period + 1e-9) * d->period;
    double value = d->base_mj + drawn(d, t);
    if (t > d->freeze_at) {
        double until = t < d->freeze_until ? t : d->freeze_until;
        value -= drawn(d, until) - drawn(d, d->freeze_at);
    }
    if (t >= d->jump_at) value += d->jump_mj;
    if (t >= d->reset_at) value -= d->base_mj + drawn(d, d->reset_at);
    return d->last = (uint64_t)value;
}

static int check(Device *d, const char *function) {
    if (!ready) return UNINITIALIZED;
    if (d < devices || d >= devices + count) return INVALID_ARGUMENT;
    double t = now();
    if ((t >= d->lost_at && t < d->back_at) || there(d->lost_file)) return LOST;
    find_work(d);
    for (int i = 0; i < d->errors; i++)
        if (!strcmp(function, d->error_function[i])) return d->error_code[i];
    return OK;
}
#define CHECK(d) do { int code_ = check((d), __func__); if (code_) return code_; } while (0)

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int code = ready ? OK : load();
    if (code == OK) ready++;
    return code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
    if (!ready) return UNINITIALIZED;
    ready--;
    return OK;
}
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : "scripted error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned room) { snprintf(out, room, "570.00.stub"); return ready ? OK : UNINITIALIZED; }
int nvmlDeviceGetCount_v2(unsigned *out) { *out = (unsigned)count; return ready ? OK : UNINITIALIZED; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) {
    if (!ready) return UNINITIALIZED;
    if (index >= (unsigned)count) return INVALID_ARGUMENT;
    *out = &devices[index];
    CHECK(*out);
    return OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Device **out) {
    if (!ready) return UNINITIALIZED;
    for (int i = 0; i < count; i++)
        if (!strcmp(uuid, devices[i].uuid)) { *out = &devices[i]; CHECK(*out); return OK; }
    return NOT_FOUND;
}
int nvmlDeviceGetUUID(Device *d, char *out, unsigned room) { CHECK(d); snprintf(out, room, "%s", d->uuid); return OK; }
int nvmlDeviceGetName(Device *d, char *out, unsigned room) { CHECK(d); snprintf(out, room, "%s", d->name); return OK; }
int nvmlDeviceGetIndex(Device *d, unsigned *out) { CHECK(d); *out = (unsigned)(d - devices); return OK; }
int nvmlDeviceGetArchitecture(Device *d, unsigned *out) { CHECK(d); *out = (unsigned)d->arch; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(Device *d, unsigned *out) { CHECK(d); *out = (unsigned)(d->limit * 1000); return OK; }
int nvmlDeviceGetMemoryInfo(Device *d, unsigned long long out[3]) {
    CHECK(d);
    out[0] = (unsigned long long)(d->memory_mib * 1048576);
    out[2] = out[0] / 4;
    out[1] = out[0] - out[2];
    return OK;
}
int nvmlDeviceGetTotalEnergyConsumption(Device *d, unsigned long long *out) {
    CHECK(d);
    if (d->no_counter) return NOT_SUPPORTED;
    *out = counter(d);
    return OK;
}
int nvmlDeviceGetPowerUsage(Device *d, unsigned *out) {
    CHECK(d);
    if (d->no_power || d->module_power) return NOT_SUPPORTED;
    *out = (unsigned)(power_now(d) * 1000);
    return OK;
}
typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    int type, code;
    union { double d; unsigned u; unsigned long long ull; } value;
} FieldValue;
int nvmlDeviceGetFieldValues(Device *d, int n, FieldValue *values) {
    CHECK(d);
    for (int i = 0; i < n; i++) {
        values[i].code = NOT_SUPPORTED;
        int right_scope = values[i].scope == (d->module_power ? 1u : 0u);
        if (values[i].field == 186 && !d->no_power && !d->no_instant && right_scope) {
            values[i].code = OK;
            values[i].type = 1;
            values[i].value.u = (unsigned)(power_now(d) * 1000);
        }
    }
    return OK;
}
int nvmlDeviceGetUtilizationRates(Device *d, unsigned out[2]) { CHECK(d); out[0] = (unsigned)d->utilization; out[1] = 0; return OK; }
int nvmlDeviceGetClockInfo(Device *d, unsigned type, unsigned *out) { CHECK(d); *out = type == 2 ? 2619 : 1980; return OK; }
int nvmlDeviceGetTemperature(Device *d, unsigned sensor, unsigned *out) { (void)sensor; CHECK(d); *out = 55; return OK; }
int nvmlDeviceGetCurrentClocksEventReasons(Device *d, unsigned long long *out) { CHECK(d); *out = 4; return OK; }
int nvmlDeviceGetMigMode(Device *d, unsigned *current, unsigned *pending) {
    CHECK(d);
    *current = *pending = (unsigned)d->mig;
    return OK;
}
