// Drawing with WebGL 2: oriented discs into a texture, then edges darkened by depth, then lines and arrows on top.

const POINTS_VERTEX = `#version 300 es
layout(location = 0) in vec3 position;
layout(location = 1) in vec3 normal;
layout(location = 2) in vec3 own;
layout(location = 3) in float level;
uniform mat4 model, view, projection;
uniform vec3 extent, plain, unmatched;
uniform sampler2D map;
uniform float radius, smallest, height, behind;
uniform int coloring;
out vec3 color, facing;
out float depth, size, reach;
void main() {
  vec4 eye = view * model * vec4(position * extent, 1.0);
  gl_Position = projection * eye;
  float perUnit = projection[1][1] * height / -eye.z;
  size = clamp(radius * perUnit, smallest, 96.0);
  gl_PointSize = size;
  reach = size / perUnit;
  depth = eye.z - behind;
  facing = mat3(view) * mat3(model) * normal;
  if (facing.z < 0.0) facing = -facing;
  vec3 mapped = level > 0.998 ? unmatched : texture(map, vec2(level, 0.5)).rgb;
  color = coloring == 0 ? plain : coloring == 1 ? mapped : own;
  float light = dot(facing, normalize(vec3(-0.3, 0.45, 0.85)));
  float shade = dot(facing, facing) < 0.25 ? 0.92 : 0.76 + 0.28 * max(light, 0.0);
  color *= coloring == 0 ? shade : mix(1.0, shade, 0.6);
}`;

const POINTS_FRAGMENT = `#version 300 es
precision highp float;
in vec3 color, facing;
in float depth, size, reach;
uniform mat4 projection;
out vec4 result;
void main() {
  vec2 place = vec2(2.0, -2.0) * (gl_PointCoord - 0.5);
  // The disc lies in the surface: away from its middle it comes nearer or goes farther.
  float rise = size < 4.0 ? 0.0 : -dot(facing.xy, place) / max(facing.z, 0.3);
  if (dot(place, place) + rise * rise > 1.0) discard;
  float z = depth + rise * reach;
  gl_FragDepth = 0.5 - 0.5 * (projection[2][2] + projection[3][2] / z);
  result = vec4(color, 1.0);
}`;

const SCREEN_VERTEX = `#version 300 es
void main() {
  gl_Position = vec4(vec2(gl_VertexID & 1, gl_VertexID >> 1) * 4.0 - 1.0, 0.0, 1.0);
}`;

// Eye-dome lighting (Boucheny 2009): a pixel is darker the more its neighbours stand before it.
const EDGES_FRAGMENT = `#version 300 es
precision highp float;
uniform sampler2D colors, depths;
uniform mat4 projection;
uniform float step;
out vec4 result;
float logDepth(ivec2 pixel) {
  pixel = clamp(pixel, ivec2(0), textureSize(depths, 0) - 1);
  float d = texelFetch(depths, pixel, 0).r;
  return log2(projection[3][2] / (2.0 * d - 1.0 + projection[2][2]));
}
void main() {
  ivec2 pixel = ivec2(gl_FragCoord.xy);
  vec4 color = texelFetch(colors, pixel, 0);
  gl_FragDepth = texelFetch(depths, pixel, 0).r;
  result = vec4(0.0);
  if (color.a == 0.0) return;
  float here = logDepth(pixel), hidden = 0.0;
  for (int k = 0; k < 8; k++) {
    float angle = 0.7854 * float(k);
    hidden += clamp(here - logDepth(pixel + ivec2(round(step * vec2(cos(angle), sin(angle))))), 0.0, 0.05);
  }
  result = vec4(color.rgb * exp(-2.4 * hidden), 1.0);
}`;

const LINES_VERTEX = `#version 300 es
layout(location = 0) in vec3 position;
layout(location = 1) in float weight;
uniform mat4 model, view, projection;
out float opacity;
void main() {
  vec4 place = vec4(position, 1.0);
  gl_Position = projection * view * ((gl_VertexID & 1) == 0 ? model * place : place);
  opacity = weight;
}`;

const LINES_FRAGMENT = `#version 300 es
precision highp float;
in float opacity;
uniform vec3 color;
uniform float strength;
out vec4 result;
void main() {
  result = vec4(color, 1.0) * (strength * opacity);
}`;

const MESH_VERTEX = `#version 300 es
layout(location = 0) in vec3 position;
layout(location = 1) in vec3 normal;
uniform mat4 view, projection;
out vec3 facing;
void main() {
  gl_Position = projection * view * vec4(position, 1.0);
  facing = mat3(view) * normal;
}`;

const MESH_FRAGMENT = `#version 300 es
precision highp float;
in vec3 facing;
uniform vec3 color;
uniform float opacity;
out vec4 result;
void main() {
  float light = max(dot(normalize(facing), normalize(vec3(-0.3, 0.6, 0.75))), 0.0);
  result = vec4(color * (0.7 + 0.4 * light), 1.0) * opacity;
}`;

class Renderer {
  constructor(canvas) {
    this.gl = canvas.getContext("webgl2", { alpha: true, antialias: true });
    if (!this.gl) throw new Error("The 3D view needs WebGL 2, which is missing here. The numbers are complete without it.");
    this.points = this.program(POINTS_VERTEX, POINTS_FRAGMENT);
    this.edges = this.program(SCREEN_VERTEX, EDGES_FRAGMENT);
    this.lines = this.program(LINES_VERTEX, LINES_FRAGMENT);
    this.mesh = this.program(MESH_VERTEX, MESH_FRAGMENT);
    this.empty = this.gl.createVertexArray();
    this.gl.pixelStorei(this.gl.UNPACK_ALIGNMENT, 1);
  }

  program(vertex, fragment) {
    const { gl } = this;
    const program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) {
      const logs = gl.getAttachedShaders(program).map((shader) => gl.getShaderInfoLog(shader));
      throw new Error(`The 3D view cannot start: ${gl.getProgramInfoLog(program)} ${logs.join(" ")}`);
    }
    const uniforms = {};
    for (let i = 0; i < gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS); i++) {
      const { name } = gl.getActiveUniform(program, i);
      uniforms[name] = gl.getUniformLocation(program, name);
    }
    return { program, uniforms };
  }

  // A vertex array of [array, numbers per corner], null for an absent one; integers stand for -1..1 or 0..1.
  vertices(attributes) {
    const { gl } = this;
    const types = { Int16Array: gl.SHORT, Int8Array: gl.BYTE, Uint8Array: gl.UNSIGNED_BYTE, Float32Array: gl.FLOAT };
    const vertices = gl.createVertexArray();
    gl.bindVertexArray(vertices);
    attributes.forEach((attribute, location) => {
      if (!attribute) return;
      const [array, numbers] = attribute;
      gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
      gl.bufferData(gl.ARRAY_BUFFER, array, gl.STATIC_DRAW);
      gl.enableVertexAttribArray(location);
      gl.vertexAttribPointer(location, numbers, types[array.constructor.name], true, 0, 0);
    });
    return vertices;
  }

  texture(width, height, format, pixels, filter) {
    const { gl } = this;
    const texture = gl.createTexture();
    const kinds = {
      [gl.RGBA8]: [gl.RGBA, gl.UNSIGNED_BYTE],
      [gl.RGB8]: [gl.RGB, gl.UNSIGNED_BYTE],
      [gl.DEPTH_COMPONENT24]: [gl.DEPTH_COMPONENT, gl.UNSIGNED_INT],
    };
    gl.bindTexture(gl.TEXTURE_2D, texture);
    gl.texImage2D(gl.TEXTURE_2D, 0, format, width, height, 0, ...kinds[format], pixels);
    for (const side of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, side, filter);
    for (const side of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, side, gl.CLAMP_TO_EDGE);
    return texture;
  }

  resize(width, height) {
    const { gl } = this;
    if (this.width === width && this.height === height) return;
    [this.width, this.height] = [gl.canvas.width, gl.canvas.height] = [width, height];
    gl.deleteTexture(this.colors);
    gl.deleteTexture(this.depths);
    this.frame ??= gl.createFramebuffer();
    this.colors = this.texture(width, height, gl.RGBA8, null, gl.NEAREST);
    this.depths = this.texture(width, height, gl.DEPTH_COMPONENT24, null, gl.NEAREST);
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.frame);
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, this.colors, 0);
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.DEPTH_ATTACHMENT, gl.TEXTURE_2D, this.depths, 0);
  }

  begin({ view, projection }) {
    const { gl } = this;
    Object.assign(this, { view, projection });
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.frame);
    gl.viewport(0, 0, this.width, this.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.enable(gl.DEPTH_TEST);
    gl.depthFunc(gl.LESS);
    gl.disable(gl.BLEND);
  }

  use({ program, uniforms }) {
    this.gl.useProgram(program);
    if (uniforms.view) this.gl.uniformMatrix4fv(uniforms.view, false, this.view);
    if (uniforms.projection) this.gl.uniformMatrix4fv(uniforms.projection, false, this.projection);
    return uniforms;
  }

  bind(unit, texture) {
    this.gl.activeTexture(this.gl.TEXTURE0 + unit);
    this.gl.bindTexture(this.gl.TEXTURE_2D, texture);
  }

  cloud(cloud, { model, map, unmatched, plain, coloring, radius, smallest, behind }) {
    const { gl } = this;
    const uniforms = this.use(this.points);
    gl.uniformMatrix4fv(uniforms.model, false, model);
    gl.uniform3fv(uniforms.extent, cloud.extent);
    gl.uniform3fv(uniforms.plain, plain);
    gl.uniform3fv(uniforms.unmatched, unmatched);
    gl.uniform1f(uniforms.radius, radius);
    gl.uniform1f(uniforms.smallest, smallest);
    gl.uniform1f(uniforms.height, this.height);
    gl.uniform1f(uniforms.behind, behind);
    gl.uniform1i(uniforms.coloring, coloring);
    gl.uniform1i(uniforms.map, 0);
    this.bind(0, map);
    gl.bindVertexArray(cloud.vertices);
    gl.drawArrays(gl.POINTS, 0, cloud.count);
  }

  // From the texture to the canvas, with its depths, so that what follows is hidden by the points.
  finishClouds(step) {
    const { gl } = this;
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.depthFunc(gl.ALWAYS);
    const uniforms = this.use(this.edges);
    this.bind(0, this.colors);
    this.bind(1, this.depths);
    gl.uniform1i(uniforms.colors, 0);
    gl.uniform1i(uniforms.depths, 1);
    gl.uniform1f(uniforms.step, step);
    gl.bindVertexArray(this.empty);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  pairs(pairs, { model, color, strength }) {
    const { gl } = this;
    const uniforms = this.use(this.lines);
    gl.uniformMatrix4fv(uniforms.model, false, model);
    gl.uniform3fv(uniforms.color, color);
    gl.uniform1f(uniforms.strength, strength);
    gl.bindVertexArray(pairs.vertices);
    gl.depthMask(false);
    gl.depthFunc(gl.ALWAYS);
    gl.drawArrays(gl.LINES, 0, pairs.count);
    gl.depthMask(true);
  }

  // Arrows stay faintly visible where points hide them.
  arrows(arrows, { color, opacity }) {
    const { gl } = this;
    const uniforms = this.use(this.mesh);
    gl.uniform3fv(uniforms.color, color);
    gl.bindVertexArray(arrows.vertices);
    for (const [depths, share] of [[gl.ALWAYS, 0.3], [gl.LEQUAL, 1]]) {
      gl.depthFunc(depths);
      gl.depthMask(depths === gl.LEQUAL);
      gl.uniform1f(uniforms.opacity, share * opacity);
      gl.drawArrays(gl.TRIANGLES, 0, arrows.count);
    }
    gl.depthMask(true);
  }
}
